"""The order of the rooms: who may import whom, and that the names of the packages are ours."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import ROOT, is_test

MAY_IMPORT: dict[str, set[str]] = {
    "twofold_algebra": set(),
    "twofold_archive": set(),
    "infra": set(),
    "quality": {"infra"},
    "tables": {"infra", "quality"},
    "streaming": {"infra", "quality", "tables"},
    "batch": {"infra", "quality", "tables"},
    "status": {"infra", "quality", "tables", "streaming", "batch"},
    "dags": {"infra", "tables"},
    "testing": {"infra", "quality", "tables", "streaming", "batch"},
}
PACKAGES = {room for room in MAY_IMPORT if room.startswith("twofold_")}
"""All rooms may import them, and they no room."""
MAY_IMPORT |= {"cli": set(MAY_IMPORT) - {"testing"} - PACKAGES}
MAY_IMPORT |= {"features": set(MAY_IMPORT) - PACKAGES}
MAY_IMPORT |= {"demo": set(MAY_IMPORT) - PACKAGES}
ORDER = (
    ("twofold_algebra/sql",),
    ("twofold_algebra",),
    ("twofold_algebra/reading",),
    ("twofold_archive/format",),
    ("twofold_archive",),
    ("infra",),
    ("infra/project",),
    ("infra/rows", "infra/process", "infra/text"),
    ("infra/kafka", "infra/airflow", "infra/spark", "infra/postgres"),
    ("infra/archive",),
    ("infra/encodings",),
    ("infra/encodings/json", "infra/encodings/avro", "infra/encodings/protobuf"),
    ("infra/delta", "infra/webhooks"),
    ("quality",),
    ("tables/declare/refusals", "tables/declare/records"),
    ("tables/declare",),
    ("tables/declare/functions",),
    ("tables",),
    ("tables/refresh/events",),
    ("tables/refresh",),
    ("streaming/query", "batch/ledgers"),
    ("streaming/ingest", "streaming/maintain", "batch"),
    ("streaming", "batch/audit"),
    ("streaming/rebuild", "batch/rewrite", "testing"),
    ("batch/plan",),
    ("batch/chores",),
    ("status/parts",),
    ("status/symptoms",),
    ("status",),
    ("dags/operators",),
    ("dags",),
    ("cli",),
    ("cli/writing",),
    ("cli/commands",),
    ("features",),
    ("features/capture", "features/webhooks", "features/outputs", "features/work_queue"),
    ("features/persons/keys",),
    ("features/persons/records",),
    ("features/persons",),
    ("features/search",),
    ("features/analysts", "features/page"),
    ("features/capture/operate", "features/outputs/targets", "features/page/views"),
    ("features/outputs/follow", "features/page/server"),
    ("features/outputs/commands",),
    ("demo", "demo/tables/DOMAIN", "demo/notebooks"),
    ("demo/traffic",),
    ("demo/traffic/expected",),
    ("demo/run",),
)
"""The folders of packages and rooms, lowest first: one imports only those before it, and none of the same line."""
RANK = {folder: number for number, folders in enumerate(ORDER) for folder in folders}
WORDS = "features.words"
"""It is made from the features, for editors and checkers of types; a word is loaded when it is used."""
HEAVY = {"pyspark", "delta", "airflow", "pandas"}
MADE = {"__pycache__", "__marimo__", "metastore_db", "spark-warehouse"}
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:home|root|Users|work|mnt|private)/\w")


def imports_of(source: str) -> Iterator[tuple[str, int]]:
    """Every module that the source imports, wherever it does so, with its line; ours without `twofold.`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.removeprefix("twofold."), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "twofold":
            yield from ((alias.name if alias.name in MAY_IMPORT else "tables", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ("." * node.level + (node.module or "").removeprefix("twofold."), node.lineno)


def place_of(room: str) -> Path:
    """The folder of a room or a package."""
    return (ROOT / "src" if room in PACKAGES else ROOT) / room


def path_of(file: Path) -> Path:
    """The path of a file as its module is called."""
    return file.relative_to(ROOT / "src" if file.is_relative_to(ROOT / "src") else ROOT)


def trespasses(room: str, source: str) -> list[str]:
    """Imports that a file of the room must not hold."""
    others = set(MAY_IMPORT) if room in PACKAGES else set(MAY_IMPORT) - PACKAGES
    forbidden = others - MAY_IMPORT[room] - {room} | {"tests", "benchmarks", "peers", "packages", "twofold"}
    return [
        f"line {line}: {module}"
        for module, line in imports_of(source)
        if module.split(".")[0] in forbidden - ({"features"} if module == WORDS else set()) or module.startswith(".")
    ]


def files_of(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Files that belong to the repository, not those that a run left there."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in MADE and (not f.startswith(".") or f == ".ci"))
        yield from (Path(place) / name for name in sorted(names) if name.endswith(suffix) and not name.endswith(".pyc"))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    found = {
        str(path_of(path)): wrong for path in modules_in(room) if (wrong := trespasses(room, path.read_text("utf-8")))
    }
    assert found == {}


def test_a_folder_imports_only_the_folders_before_it() -> None:
    modules = {".".join(path_of(path).with_suffix("").parts): path for path in modules_in()}
    upwards = [
        f"{path_of(path)}:{line}: {target}"
        for name, path in modules.items()
        if name != "cli.__main__"
        for target, line in _targets(path.read_text("utf-8"), modules)
        if (other := _folder(modules[target])) != (own := _folder(path)) and RANK[other] >= RANK[own]
    ]
    assert upwards == []


def test_no_module_imports_itself_through_others() -> None:
    """Also where the import is in a function, or for types alone."""
    modules = {".".join(path_of(path).with_suffix("").parts): path for path in modules_in()}
    imported = {
        name: {target for target, _ in _targets(path.read_text("utf-8"), modules) if target != name}
        for name, path in modules.items()
    }
    assert list(TopologicalSorter(imported).static_order())
    with pytest.raises(CycleError):
        TopologicalSorter({**imported, "infra.errors": {"cli.writing.author"}}).prepare()


def is_of_removed_feature(name: str) -> bool:
    """Whether a path is of a feature that is not there."""
    return name.startswith("features/") and not (ROOT / Path(*Path(name).parts[:2])).exists()


def test_every_folder_has_a_place_in_the_order() -> None:
    folders = {_folder(path) for path in modules_in()}
    assert folders <= set(RANK)
    assert [name for name in set(RANK) - folders if not is_of_removed_feature(name)] == []


def modules_in(*rooms: str) -> Iterator[Path]:
    paths = (path for room in rooms or MAY_IMPORT for path in files_of(place_of(room), ".py"))
    return (path for path in paths if not is_test(path.relative_to(ROOT)))


def _folder(path: Path) -> str:
    folder = path_of(path).parent
    return "demo/tables/DOMAIN" if folder.is_relative_to("demo/tables") else str(folder)


def _targets(source: str, modules: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    """The modules of ours that a source imports, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in (name.removeprefix("twofold.") for name in names):
            for found in (name, f"{name}.__init__", name.rpartition(".")[0], f"{name.rpartition('.')[0]}.__init__"):
                if found in modules:
                    yield found, node.lineno
                    break


def test_streaming_and_batch_know_nothing_of_each_other() -> None:
    assert "batch" not in MAY_IMPORT["streaming"]
    assert "streaming" not in MAY_IMPORT["batch"]
    assert trespasses("batch", "def run():\n    from twofold.streaming.query.progress import read\n") == [
        "line 2: streaming.query.progress"
    ]


def test_a_package_imports_neither_a_room_nor_another_package() -> None:
    source = (
        "from twofold import F\nimport twofold_archive\nfrom twofold.infra import errors\nimport twofold_algebra.keys\n"
    )
    assert trespasses("twofold_algebra", source) == ["line 1: tables", "line 2: twofold_archive", "line 3: infra"]
    assert trespasses("infra", source) == ["line 1: tables"]


def test_no_room_imports_the_outermost_rooms() -> None:
    users = {outer: [room for room, allowed in MAY_IMPORT.items() if outer in allowed] for outer in MAY_IMPORT}
    assert users["cli"] == ["features", "demo"]
    assert users["dags"] == users["status"] == ["cli", "features", "demo"]
    assert users["features"] == ["demo"]
    assert users["demo"] == []


def test_a_feature_is_imported_by_its_face_and_not_by_the_core() -> None:
    """Its face is what lies in its folder itself; the layers below are its own. The demo shows all of them."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules_in()}
    found = []
    for path in modules.values():
        own = path.relative_to(ROOT)
        for target, line in _targets(path.read_text("utf-8"), modules):
            place = modules[target].relative_to(ROOT)
            if place.parts[0] != "features" or own.parts[:2] == place.parts[:2] or own.parts[0] == "demo":
                continue
            if own.parts[0] != "features" or len(place.parts) > 3:
                found.append(f"{own}:{line}: {target}")
    assert found == []


def test_an_import_for_types_alone_and_a_relative_one_count() -> None:
    source = "if TYPE_CHECKING:\n    import twofold.batch.rewrite.replay\nfrom . import rules\n"
    assert trespasses("quality", source) == ["line 3: .", "line 2: batch.rewrite.replay"]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_package_is_the_one_of_this_checkout(room: str) -> None:
    package = importlib.import_module(room if room in PACKAGES else f"twofold.{room}")
    assert package.__file__ is not None
    assert Path(package.__file__).resolve() == (place_of(room) / "__init__.py").resolve()


def test_no_installed_distribution_claims_the_name_of_a_room() -> None:
    claimed = {
        room: owners for room, owners in importlib.metadata.packages_distributions().items() if room in MAY_IMPORT
    }
    assert claimed == {}


def test_nothing_in_dags_bears_the_name_of_a_room() -> None:
    # Airflow puts the folder of the DAGs on the path: such a file would be imported instead of the room.
    assert {path.stem for path in files_of(ROOT / "dags", ".py")} & set(MAY_IMPORT) == set()
    assert {path.name for path in (ROOT / "dags").iterdir() if path.is_dir()} & set(MAY_IMPORT) == set()


def test_declarations_load_neither_spark_nor_airflow() -> None:
    declarations = list(files_of(ROOT / "demo" / "tables", ".py"))
    assert len(declarations) >= 7
    heavy = {
        str(path.relative_to(ROOT)): sorted(found)
        for path in declarations
        if (found := HEAVY & {m.split(".")[0] for m, _ in imports_of(_at_load(path.read_text("utf-8")))})
    }
    assert heavy == {}


def _at_load(source: str) -> str:
    """What runs when the file is loaded: neither bodies of functions nor what is there for types alone."""
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef)
        and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    return ast.unparse(tree)


def test_no_file_names_a_place_on_one_machine() -> None:
    found = []
    for path in files_of(ROOT):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}"
            for hit in MACHINE_PATH.finditer(text)
        ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        # In two parts, so that this file is not found itself.
        ("cd " + "/ho" + "me/ann/twofold", True),
        ("open('" + "/Us" + "ers/ann/x.csv')", True),
        ("ROOT / 'home'", False),
        ("`events/home/x`", False),
    ],
)
def test_what_counts_as_a_place_on_one_machine(text: str, is_refused: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_refused
