"""Names of Python and of packages whose answer depends on when or where it is asked, and those known to be pure."""

from __future__ import annotations

import builtins
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from twofold.infra.errors import BadDeclaration
from twofold.infra.project.project import project
from twofold.tables.declare.refusals.declaration_refusal import DeclarationRefusal
from twofold_algebra.refusal import Subject

_CLOCK = "Take times from the events: the batch computes the same rows again years later."
_CHANCE = "Leave chance out, or derive it from the key with F.hash."
_PLACE = "Other data come from a topic or a table, as a parameter of the function."
_PROCESS = "Derive it from values with F.hash or hashlib: Python gives another one in each process."
_UNSEEN = "Call functions by their names: a change of code that is found when it runs is not seen."
SET_ORDER = "the order of a set"
_REFUSED = {
    _CLOCK: "datetime.now datetime.utcnow datetime.today time pandas.Timestamp.now pandas.Timestamp.utcnow "
    "pandas.Timestamp.today",
    _CHANCE: "random secrets numpy.random uuid.uuid1 uuid.uuid4 uuid.getnode",
    _PROCESS: "hash id",
    _UNSEEN: "eval exec compile globals locals __import__ importlib runpy sys.modules",
    _PLACE: "open input io.open io.FileIO codecs.open pathlib.Path os platform socket subprocess glob shutil tempfile "
    "locale sqlite3 shelve http urllib.request requests httpx aiohttp urllib3 boto3 psycopg "
    "pandas.read_csv pandas.read_excel pandas.read_feather pandas.read_fwf pandas.read_hdf pandas.read_html "
    "pandas.read_json pandas.read_orc pandas.read_parquet pandas.read_pickle pandas.read_sql pandas.read_sql_query "
    "pandas.read_table pandas.read_xml numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile numpy.memmap "
    "pyarrow.csv pyarrow.dataset pyarrow.feather pyarrow.flight pyarrow.fs pyarrow.json pyarrow.orc pyarrow.parquet "
    "pyarrow.memory_map pyspark.SparkSession pyspark.SparkContext pyspark.SparkFiles pyspark.TaskContext "
    "pyspark.BarrierTaskContext",
}
IMPURE = {
    **{name: instead for instead, names in _REFUSED.items() for name in names.split()},
    SET_ORDER: "Write sorted(...): Python orders a set otherwise in each process.",
}
"""What is refused -> what to do instead; `package.name` means that name anywhere in the package."""
_COMPUTING = """
__future__ abc array ast base64 binascii bisect bz2 calendar cmath codecs collections colorsys contextlib contextvars
copy csv dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io ipaddress
itertools json logging lzma math msgspec numbers numpy operator os.path.basename os.path.dirname os.path.join
os.path.split os.path.splitext pandas pathlib.PurePath pathlib.PurePosixPath pprint pyarrow pyspark re reprlib
statistics string struct sys.float_info sys.maxsize textwrap threading types typing typing_extensions
tantivy.Filter tantivy.TextAnalyzerBuilder tantivy.Tokenizer unicodedata urllib.parse uuid warnings xml zlib zoneinfo
"""
PURE = frozenset(_COMPUTING.split())
"""What is accepted, but for what is refused of it; and the functions that Python has without an import."""
_DECLARE = Path(__file__).parent.parent
"""Where `find_matches` takes the module of a function to send it to other processes."""
_ALIASES = {"posix": "os", "nt": "os", "posixpath": "os.path", "ntpath": "os.path"}


IMPURE_CALL = DeclarationRefusal(
    name="impure-call-in-a-file",
    subject=Subject.CLOCK,
    shape="uses {calls}",
    why="it gives the stream and the batch different answers",
    instead="{advice}",
    runs=True,
)
UNKNOWN_CALL = DeclarationRefusal(
    name="call-that-is-not-known-to-be-pure",
    subject=Subject.CLOCK,
    shape="uses {calls}",
    why="it is not known to give the same answer each time",
    instead="Write pure={modules} if it reads no clock and no file and leaves nothing to chance.",
    runs=True,
)


@dataclass(frozen=True)
class Use:
    """A place in code that uses something that is not of this repository.

    Attributes:
        name: what it is, as `package.name`.
    """

    name: str
    file: str
    line: int


def purity_mistakes(uses: Collection[Use], vouched: Sequence[str], file: Path) -> Iterator[BadDeclaration]:
    """Finds what makes a function impure, and what is not known not to.

    Args:
        vouched: modules that the declaration calls pure.
        file: that of the declaration.
    """
    own = [use for use in uses if use.name != "sys.modules" or not Path(use.file).is_relative_to(_DECLARE)]
    used = sorted(own, key=lambda use: (use.file != str(file), use.file, use.line, use.name))
    impure = {use: instead for use in used if (instead := _instead(use.name))}
    if impure:
        yield IMPURE_CALL.error(calls=_places(impure, file), advice=" ".join(dict.fromkeys(impure.values())))
    known = {*PURE, *vars(builtins), *vouched}
    unknown = [use for use in used if use not in impure and not _is_in(use.name, known)]
    if unknown:
        modules = list(dict.fromkeys(use.name.partition(".")[0] for use in unknown))
        yield UNKNOWN_CALL.error(calls=_places(unknown, file), modules=json.dumps(modules))


def _places(uses: Collection[Use], file: Path) -> str:
    return ", ".join(f"{use.name} in {_place(use, file)}" for use in uses)


def _place(use: Use, file: Path) -> str:
    path = Path(use.file)
    return f"line {use.line}" if path == file else f"{project().shown(path)}, line {use.line}"


@lru_cache(maxsize=10_000)
def _instead(name: str) -> str | None:
    """Returns what to use instead; None: it is not known to be impure."""
    parts = name.split(".")
    for impure, instead in IMPURE.items():
        if not impure.startswith(parts[0]):
            continue
        top, *rest = impure.split(".")
        below = iter(parts[1:])
        if parts[0] == top and all(part in below for part in rest):
            return None if any(_is_in(name, [pure]) for pure in PURE if pure.startswith(f"{impure}.")) else instead
    return None


def is_impure(name: str) -> bool:
    """Whether it is known to be impure."""
    return _instead(name) is not None


def _is_in(name: str, modules: Collection[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:n]) in modules for n in range(1, len(parts) + 1))


def name_of(value: object) -> str:
    """Returns what a thing of an installed package or of Python is called there, without `builtins`."""
    owner = getattr(value, "__objclass__", getattr(value, "__self__", None))
    holder = value if isinstance(owner, ModuleType | None) else owner if isinstance(owner, type) else type(owner)
    if isinstance(value, ModuleType):
        name = value.__name__
    else:
        name = f"{getattr(holder, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    top, dot, rest = name.removeprefix("builtins.").partition(".")
    return _ALIASES.get(top, top if top.startswith("__") else top.lstrip("_")) + dot + rest
