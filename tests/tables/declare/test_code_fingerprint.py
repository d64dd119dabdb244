"""A fingerprint distinguishes one definition of a table from another."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.plant import HOURS, plant
from tests.tables.declared import READINGS, TABLE_FILE, TOPIC_FILE, a_table, a_topic, bound_as, edited, written
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration
from twofold.infra.python_source import _parsed
from twofold.tables.declare.code_fingerprint import fingerprint, read_code
from twofold.tables.declare.encodings import ENCODINGS, find_encoding
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import definition
from twofold.tables.refresh.derived_rows import version_columns
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.record_decoder import Decoder

USING_FILE = '''\
"""The newest reading of each sensor."""
import math
from functools import partial

from twofold import table

LIMIT = {"low": 1, "high": 9}
SPARE = 1


class Scale:
    """How a value is read."""

    factor = 2

    def read(self, value):
        return value * self.factor


def inner(value, by=3):
    """What this says does not count."""
    return value + by + LIMIT["low"]


def outer(value):
    return [inner(x) for x in value]


def unused(value):
    return value - 1


@table(primary_key=["sensor"], sequence_by=["read_at"], recompute_by=["sensor"])
def latest(readings):
    import plain_helper

    scale = Scale()

    def each(value):
        return outer(value) or plain_helper.twice(value) or math.sqrt(value)

    return readings, scale, each, partial(max, 4)
'''
HELPER_FILE = '''\
"""Beside the declarations."""


def twice(value):
    return 2 * value
'''


def fingerprint_of(folder: Path, text: str) -> str:
    registry = load(written(folder, {"plant/readings.py": TOPIC_FILE, "plant/newest.py": text}))
    return fingerprint(registry.require_sound().tables["plant.newest"])


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that declarations import when they run."""
    file = written(tmp_path / "beside", {"plain_helper.py": HELPER_FILE}) / "plain_helper.py"
    monkeypatch.syspath_prepend(str(file.parent))
    yield file
    sys.modules.pop("plain_helper", None)


def test_the_same_definition_has_the_same_fingerprint_in_any_place(tmp_path: Path) -> None:
    first = fingerprint_of(tmp_path / "one", TABLE_FILE)
    assert len(first) == 12
    assert (
        first
        == fingerprint_of(tmp_path / "two", TABLE_FILE)
        == fingerprint_of(tmp_path / "two", TABLE_FILE + "\n\n# The end.\n")
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return readings", "return readings.distinct()"),
        ('primary_key=["sensor"]', 'primary_key=["sensor", "value"]'),
        ('sequence_by=["read_at"]', 'sequence_by=["value"]'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], watermark="1 hour"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], event_time="read_at"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], late="drop"'),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], event_time="read_at", depends_within="1 hour"'),
    ],
)
def test_another_definition_has_another_fingerprint(tmp_path: Path, old: str, new: str) -> None:
    changed = edited(TABLE_FILE, old, new)
    assert changed != TABLE_FILE
    assert fingerprint_of(tmp_path / "one", TABLE_FILE) != fingerprint_of(tmp_path / "two", changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('return value + by + LIMIT["low"]', 'return value - by + LIMIT["low"]'),  # called by what it calls
        ("by=3", "by=4"),
        ('"low": 1', '"low": 2'),
        ("factor = 2", "factor = 3"),
        ("return value * self.factor", "return self.factor"),
        ("partial(max, 4)", "partial(max, 5)"),
        ("partial(max, 4)", "partial(min, 4)"),
    ],
)
@pytest.mark.usefixtures("helper")
def test_what_the_function_uses_is_part_of_the_definition(tmp_path: Path, old: str, new: str) -> None:
    changed = edited(USING_FILE, old, new)
    assert changed != USING_FILE
    assert fingerprint_of(tmp_path / "one", USING_FILE) != fingerprint_of(tmp_path / "two", changed)


@pytest.mark.parametrize(
    ("above", "old", "new"),
    [
        ("@dataclass(slots=True)\nclass Scale:\n    by: int\n\nUSED = Scale(1)", "Scale(1)", "Scale(2)"),
        ("USED = re.compile('a' * 300 + 'b')", "'b'", "'c'"),
        ("USED = re.compile('a' * 300)", "300", "300, re.IGNORECASE"),
        ("USED = re.compile('a').match", "'a'", "'b'"),
        ("USED = np.arange(2_000)\nUSED[1_000] = 5", "= 5", "= 6"),
        ("USED = np.array([0.1234567890123])", "123])", "124])"),
        ("USED = np.array(['a', None])", "None", "'b'"),
        ("USED = np.float64(0.1)", "0.1", "0.2"),
        ("USED = itemgetter('a')", "'a'", "'b'"),
        ("class Scale:\n    by = 1\n\nScale.by = 1\nUSED = Scale()", "Scale.by = 1", "Scale.by = 2"),
        ("class Scale:\n    pass\n\nScale.by = 1\nUSED = Scale", "Scale.by = 1", "Scale.by = 2"),
        (
            "class Scale:\n    pass\n\ndef by(self):\n    return 1\n\nScale.by = by\nUSED = Scale",
            "return 1",
            "return 2",
        ),
        ("USED = type('Scale', (), {'by': 1})", "1", "2"),
        ("USED = range(10**30)", "10**30", "10**31"),
        ("USED = range(10**9)", "10**9", "10**8"),
        ("USED = slice(1, 2)", "2)", "3)"),
        ("USED = {'a': math}", "math", "re"),
        ("USED = [lambda x: x, lambda x: -x][0]\nOTHER = [USED]", "[0]", "[1]"),
        ("PAIR = (lambda x: x, lambda x: -x)\nN = 0\nUSED = PAIR[N]", "N = 0", "N = 1"),
        ("USED = functools.partial(max, key=abs)", "key=abs", "key=len"),
        (
            "class Scale:\n    by = 1\n\n    def it(self):\n        return 1\n\nUSED = Scale().it",
            "return 1",
            "return 2",
        ),
        (
            "class Kind(enum.Enum):\n    A = 1\n\n    def it(self):\n        return 1\n\nUSED = Kind.A",
            "return 1",
            "return 2",
        ),
        (
            "class Kind(enum.StrEnum):\n    A = 'a'\n\n    def it(self):\n        return 1\n\nUSED = Kind.A",
            "n 1",
            "n 2",
        ),
        ("Kind = enum.Enum('Kind', {'A': 1})\nUSED = Kind", "1", "2"),
        ("class Kind(enum.Enum):\n    A = re.compile('a')\n\nKIND = Kind\nUSED = Kind.A", "'a'", "'b'"),
        ("class Text(str):\n    def it(self):\n        return 1\n\nUSED = Text('a')", "return 1", "return 2"),
        ("class Rates(dict):\n    def __missing__(self, key):\n        return 1\n\nUSED = Rates(a=1)", "n 1", "n 2"),
        ("USED = collections.defaultdict(lambda: 5)", "5", "6"),
        ("USED = collections.deque([1], maxlen=2)", "maxlen=2", "maxlen=3"),
        ("USED = array.array('i', [1])", "'i'", "'l'"),
        ("USED = bytearray(b'a')", "b'a'", "b'b'"),
        ("USED = memoryview(np.zeros((2, 2)))", "(2, 2)", "(4, 1)"),
        ("USED = Decimal('1.10')", "1.10", "1.1"),
        ("USED = datetime(2026, 1, 1, tzinfo=ZoneInfo('Europe/Berlin'))", "Berlin", "Rome"),
        ("USED = timezone(timedelta(hours=1), 'a')", "hours=1", "hours=2"),
        (
            (
                "class Zone(tzinfo):\n    __repr__ = 'zone'.__str__\n    def utcoffset(self, at):\n"
                "        return timedelta(1)\n"
                "USED = datetime(2026, 1, 1, tzinfo=Zone())"
            ),
            "timedelta(1)",
            "timedelta(2)",
        ),
        ("def it():\n    return 1\n\nit.by = 1\nUSED = it", "it.by = 1", "it.by = 2"),
        (
            (
                "def wrap(f):\n    @functools.wraps(f)\n    def inner(x):\n        return f(x) + 1\n"
                "    return inner\n\n"
                "def it(x):\n    return x\n\nUSED = wrap(it)"
            ),
            "+ 1",
            "+ 2",
        ),
        (
            (
                "@functools.singledispatch\ndef it(x):\n    return x\n\n@it.register\ndef _(x: int):\n    return 1\n\n"
                "USED = it"
            ),
            "return 1",
            "return 2",
        ),
        ("def part(x):\n    return 1\n\nUSED = {part, len}", "return 1", "return 2"),
        ("USED = list[int]", "int", "str"),
    ],
)
def test_a_value_is_part_of_the_definition_in_full(tmp_path: Path, above: str, old: str, new: str) -> None:
    before = using(above)
    assert fingerprint_of(tmp_path / "one", before) == fingerprint_of(tmp_path / "two", before)
    assert fingerprint_of(tmp_path / "one", before) != fingerprint_of(tmp_path / "three", edited(before, old, new))


def test_the_attributes_of_a_class_as_its_text_says_count_once(tmp_path: Path) -> None:
    text = using("class Scale:\n    by = {1, 2}\n\nUSED = Scale()")
    again = edited(text, "USED =", "Scale.by = {2, 1}\nUSED =")
    assert fingerprint_of(tmp_path / "one", text) == fingerprint_of(tmp_path / "two", again)


@pytest.mark.parametrize(
    ("above", "kind"),
    [
        ("USED = pa.table({'a': [1]})", "pyarrow.lib.Table"),
        ("USED = {'a': [pa.array([1])]}", "pyarrow.lib.Int64Array"),
        ("USED = np.ma.array([1])", "numpy.ma.MaskedArray"),
        ("USED = (n for n in [1])", "builtins.generator"),
        ("def made():\n    return open(__file__)\n\nUSED = made()", "_io.TextIOWrapper"),
        ("def made():\n    return np.random.default_rng(1)\n\nUSED = made()", "numpy.random._generator.Generator"),
        ("USED = itemgetter(object())", "operator.itemgetter"),
        ("USED = iter([1])", "builtins.list_iterator"),
        ("def made():\n    return os.environ\n\nUSED = made()", "os._Environ"),
        ("USED = [tables]", "the module twofold.tables of this repository"),
    ],
)
def test_a_value_that_cannot_be_written_down_is_refused(tmp_path: Path, above: str, kind: str) -> None:
    with pytest.raises(BadDeclaration) as error:
        fingerprint_of(tmp_path, using(above))
    what = kind if kind.startswith("the ") else f"a {kind}"
    assert f"USED is or holds {what}, which cannot be written down" in str(error.value)


def test_a_value_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDeclaration, match="a value that is nested too deeply, which cannot be written down"):
        fingerprint_of(tmp_path, using("USED = []\nfor _ in range(5_000):\n    USED = [USED]"))


def test_all_values_that_cannot_be_written_down_are_found(tmp_path: Path) -> None:
    with pytest.raises(BadDeclaration) as error:
        fingerprint_of(tmp_path, using("USED = [iter([1]), (n for n in [1])]"))
    assert "builtins.list_iterator" in error.value.message
    assert "builtins.generator" in str(error.value.facts["more"])


IMPORTS = """\
import array, collections, enum, functools, math, os, re
from twofold import tables
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from operator import itemgetter
from zoneinfo import ZoneInfo
import numpy as np
import pyarrow as pa
"""


def using(above: str) -> str:
    """The declaration of a table whose function uses `USED`."""
    text = edited(TABLE_FILE, "@table", f"{IMPORTS}\n{above}\n\n\n@table")
    return edited(text, "    return readings", "    return readings if USED else readings")


def test_what_the_function_imports_when_it_runs_is_part_of_the_definition(tmp_path: Path, helper: Path) -> None:
    first = fingerprint_of(tmp_path / "one", USING_FILE)
    assert first == fingerprint_of(tmp_path / "two", USING_FILE)
    helper.write_text(edited(HELPER_FILE, "2 * value", "3 * value + 1"))
    del sys.modules["plain_helper"]
    assert first != fingerprint_of(tmp_path / "three", USING_FILE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    return [inner(x) for x in value]",
            "    # For each.\n    return [\n        inner(x) for x in value\n    ]",
        ),
        ("What this says does not count.", "Something else."),
        ("How a value is read.", "Something else."),
        ("return value - 1", "return value - 2"),
        ("SPARE = 1", "SPARE = 2"),
        ('recompute_by=["sensor"]', 'recompute_by=["sensor"], tolerances={"value": 0.1}'),
        (
            'recompute_by=["sensor"]',
            'recompute_by=["sensor"], owner="plant", tags=["a"], freshness="1 minute", approve_above=5, pure=["yaml"]',
        ),
        ("def latest(readings):", 'def latest(readings):\n    """The newest.\n\n    sensor: which\n    """'),
    ],
)
@pytest.mark.usefixtures("helper")
def test_what_cannot_change_a_row_is_no_part_of_the_definition(tmp_path: Path, old: str, new: str) -> None:
    changed = edited(USING_FILE, old, new)
    assert changed != USING_FILE
    assert fingerprint_of(tmp_path / "one", USING_FILE) == fingerprint_of(tmp_path / "two", changed)


def test_a_name_of_spark_counts_alike_in_file_and_function(tmp_path: Path) -> None:
    inside = edited(
        TABLE_FILE,
        "    return readings",
        "    from pyspark.sql import Window\n    from pyspark.sql import functions as F\n\n"
        '    return readings.withColumn("n", F.count("*").over(Window.partitionBy("sensor")))',
    )
    head = edited(inside, "    from pyspark.sql import Window\n    from pyspark.sql import functions as F\n\n", "")
    head = edited(head, "from twofold import table", "from twofold import F, Window, table")
    assert fingerprint_of(tmp_path / "one", inside) == fingerprint_of(tmp_path / "two", head)
    swapped = edited(head, "F, Window, table", "Window as F, F as Window, table")
    assert fingerprint_of(tmp_path / "one", head) != fingerprint_of(tmp_path / "two", swapped)


def test_where_a_declaration_is_kept_is_no_part_of_the_definition() -> None:
    assert fingerprint(bound_as(a_table(), "days", "mine")) == fingerprint(a_table())
    assert decoding(bound_as(a_topic(), "values", "mine")) == decoding(a_topic())


def test_rules_are_no_part_of_the_definition() -> None:
    from twofold.quality.rules import not_null

    assert fingerprint(a_table()) == fingerprint(a_table(checks=[not_null("sensor")]))


def test_how_a_rule_judges_tables_is_no_part_of_how_records_are_decoded() -> None:
    from twofold.quality.rules import Between

    read = "\n".join(read_code(Between).lines)
    assert [word for word in ("arrow", "spark", "measures", "expectation") if word in read] == ["arrow"]


def test_a_kind_of_rule_is_part_of_decoding_where_a_topic_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.quality.rules import between

    plain, checked = a_topic(), a_topic(checks=[between("value", 0, 1)])
    before = decoding(plain), decoding(checked)
    monkeypatch.setattr(
        "twofold.tables.refresh.events.decoding_fingerprint._rule", lambda kind: (f"another {kind.kind}",)
    )
    assert (decoding(plain) == before[0], decoding(checked) == before[1]) == (True, False)


def test_a_local_variable_with_the_name_of_its_table_is_no_part_of_it(tmp_path: Path) -> None:
    strict = edited(HOURS, 'late="correct",', 'late="correct", owner="sensors@plant",')
    one, other = (plant(tmp_path / str(n), hours=text).tables["plant.hours"] for n, text in enumerate((HOURS, strict)))
    assert "hours = readings.where" in HOURS
    assert fingerprint(one) == fingerprint(other)


def test_two_functions_that_call_each_other_are_read_once_each(tmp_path: Path) -> None:
    text = edited(TABLE_FILE, "@table", "def even(n):\n    return n == 0 or odd(n - 1)\n\n\n@table")
    text = edited(text, "def even", "def odd(n):\n    return n != 0 and even(n - 1)\n\n\ndef even")
    text = edited(text, "return readings", "return readings if even(2) else None")
    assert fingerprint_of(tmp_path / "one", text) != fingerprint_of(tmp_path / "two", edited(text, "n != 0", "n > 0"))


def declared(table: Table, **topic: Any) -> Registry:
    return Registry({"plant.readings": a_topic(**topic)}, {table.full_name: table})


def test_dedup_keys_are_no_part_of_tables_that_keep_all_records(lake: Lake) -> None:
    each = a_table(closes_at=None, watermark=None, event_time=None, depends_within=None, recompute_by=["sensor"])
    assert definition(each, declared(each)) == fingerprint(each)


def test_versions_order_any_two_different_rows_of_a_key() -> None:
    table = a_table(closes_at=None, depends_within=None, primary_key=["sensor"], sequence_by=["read_at", "sensor"])
    assert version_columns(table, ["value", "sensor", "read_at", "count"]) == ["read_at", "value", "count"]


@pytest.mark.parametrize(
    "change",
    [{"max_bytes": 10}, {"max_future_skew": "2 hours"}, {"schema": {**READINGS.schema, "unit": "string?"}}],
    ids=lambda change: next(iter(change)),
)
def test_records_are_decoded_otherwise_when_their_declaration_says_so(change: dict[str, object]) -> None:
    assert decoding(a_topic(**change)) != decoding(a_topic())


def test_how_a_topic_is_kept_does_not_change_what_its_records_become() -> None:
    assert decoding(a_topic(partitions=9, tiered=False, local_retention="2 days")) == decoding(a_topic())


class Garbage:
    """What only the garbage collector removes, and that then lets other threads run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def collected_often() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("collected_often")
def test_threads_may_ask_at_once_whenever_garbage_is_collected() -> None:
    """Where threads make syntax trees at once, Python 3.11 says SystemError: python/cpython#106905."""
    table = load().find_table("missed_turnarounds")  # it uses classes and functions of other modules
    alone = fingerprint(table)

    def ask(_: int) -> str:
        for _ in range(50):
            Garbage()
        _parsed.cache_clear()
        return fingerprint(table)

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(ask, range(90))) == {alone}


def test_the_place_of_an_imported_module_is_no_part_of_the_definition(tmp_path: Path, helper: Path) -> None:
    written(helper.parent, {"moved_helpers/__init__.py": "", "moved_helpers/copy_of_it.py": HELPER_FILE})
    text = edited(edited(USING_FILE, "import plain_helper", "from plain_helper import twice"), "plain_helper.", "")
    moved = edited(text, "from plain_helper import", "from moved_helpers.copy_of_it import")
    assert moved != text
    assert fingerprint_of(tmp_path / "one", text) == fingerprint_of(tmp_path / "two", moved)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_how_records_are_decoded_is_the_same_in_every_checkout(encoding: str) -> None:
    """A path in the decoder's code, such as that of the schemas, is written as one below the checkout.

    Its texts do not say how the platform is called, which is otherwise where it is installed.
    """
    codes = [read_code(Decoder), read_code(find_encoding(encoding).parser_class)]
    lines = [line for code in codes for line in code.lines]
    assert "path schemas" in lines
    assert [line for line in lines if str(ROOT) in line or line == "COMMAND"] == []
