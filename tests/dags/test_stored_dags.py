"""The DAGs of any domain go through what Airflow's processor does with them; one that cannot takes no other down."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.nexmark import DECLARED
from tests import ROOT
from tests.tables.declared import TABLE_FILE, TOPIC_FILE, bound_as, written
from twofold.features.capture.captured_topic import changes_of
from twofold.infra.airflow.dag_names import MAINTAIN
from twofold.infra.encodings import schema_files
from twofold.infra.project.settings import Settings
from twofold.tables.declare.record_fields import field, header, key
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

AVRO = """{"type": "record", "name": "Event", "fields": [{"name": "id", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"""
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Event { string id = 1; google.protobuf.Timestamp at = 2; }
"""
NAMES = st.from_regex(r"\A[a-z][a-z0-9_]{0,40}\Z").filter(lambda name: name not in ("id", "at") and not iskeyword(name))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
TYPES = ["string", "long?", "decimal(12,2)?", "array<struct<a: string, b: long>>?", "map<string,long>?", "json?"]


def types(name: str) -> st.SearchStrategy[str]:
    """The types of a column of this name, some with the place in a record that its values come from."""
    return st.one_of(
        st.sampled_from(TYPES),
        st.builds(lambda text: field(f"in.{name}", "string", default=text), TEXTS),
        st.builds(lambda number: field(f"in.{name}", "long", default=number), st.integers(-(2**63), 2**63 - 1)),
        st.just(field(f"in.{name}", "double", default=0.5)),
        st.just(key("string?")),
        st.just(header(name)),
    )


TAGS = st.lists(st.from_regex(r"\A[A-Za-z0-9 _-]{1,20}\Z"), max_size=2)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    kind = draw(st.sampled_from(["json", "avro", "protobuf", "captured"]))
    if kind == "captured":
        columns = dict.fromkeys(
            draw(st.lists(NAMES.filter(lambda name: not name.startswith("cdc_")), max_size=4)), "string"
        )
        return changes_of("public.things", columns={"id": "string", **columns}, primary_key=["id"])
    times: dict[str, Any] = {"event_time": "at", "message_key": "id", "dedup_keys": ["id"]}
    if kind != "json":
        return Topic(encoding=kind, subject=f"{kind}-value", **times)
    added = {name: draw(types(name)) for name in draw(st.lists(NAMES, max_size=5))}
    return Topic(schema={"id": "string", "at": "timestamp", **added}, **times)


def reading(topic: str, columns: Mapping[str, str], about: str) -> Callable[[Any], Any]:
    """A function of a table that reads a topic of this name, with a docstring."""

    def derive(rows: Any) -> Any:
        return rows

    derive.__doc__ = "\n".join([about, *(f"{name}: {text}" for name, text in columns.items())])
    rows = inspect.Parameter(topic, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    derive.__signature__ = inspect.Signature([rows])  # type: ignore[attr-defined]
    return derive


@st.composite
def domains(draw: st.DrawFn) -> Registry:
    """A domain of one to three topics, each read by one table that says anything about itself."""
    domain = draw(NAMES)
    registry = Registry({}, {}, {}, [])
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        topic = replace(bound_as(draw(topics()), name, domain), description=draw(TEXTS))

        table = Table(
            derive=reading(name, draw(st.dictionaries(NAMES, TEXTS, max_size=4)), draw(TEXTS)),
            primary_key=["id"],
            recompute_by=["id"],
            event_time="at",
            owner=draw(st.none() | TEXTS.filter(lambda text: bool(text.strip()))),
            tags=draw(TAGS),
            freshness=draw(st.none() | st.just("1 minute")),
        )
        bound = replace(bound_as(table, f"{name}_rows", domain), description=draw(TEXTS))
        registry = Registry(
            {**registry.topics, topic.full_name: topic}, {**registry.tables, bound.full_name: bound}, {}, []
        )
    return registry


@pytest.fixture(scope="module", autouse=True)
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("schemas")
    written(folder, {"avro-value/1.avsc": AVRO, "protobuf-value/1.proto": PROTO})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_files, "FOLDER", folder)
        yield


def sent_to_the_parent(registry: Registry, home: Path) -> dict[str, Any]:
    """Id -> the DAG that Airflow's process that stores DAGs reads; encoded and decoded as Airflow does it."""
    import msgspec
    import structlog
    from airflow.dag_processing import processor
    from airflow.sdk.execution_time.comms import _RequestFrame

    from twofold.dags.sound_dags import sound_dags

    made = sound_dags(registry, Settings(home=home))
    assert made.faults == {}
    bag: Any = type("Bag", (), {"dags": {dag.dag_id: dag for dag in made.dags}})
    stored, errors = processor._serialize_dags(bag, structlog.get_logger())
    assert errors == {}
    result = processor.DagFileParsingResult(fileloc="generate_dags.py", serialized_dags=stored, import_errors={})
    frame = _RequestFrame(id=0, body=result.model_dump()).as_bytes()
    body = msgspec.msgpack.decode(frame[4:])[1]
    return {dag["data"]["dag"]["dag_id"]: dag["data"]["dag"] for dag in body["serialized_dags"]}


@pytest.mark.parametrize("declared", [None, DECLARED], ids=["ours", "nexmark"])
def test_every_dag_arrives_where_airflow_stores_it(declared: Path | None, tmp_path: Path) -> None:
    from twofold.status.parts.unloaded_dags import declared_dags

    registry = load(declared)
    arrived = sent_to_the_parent(registry, tmp_path)
    of_domains = (name for domain in registry.domains for name in declared_dags(registry, domain))
    assert sorted(arrived) == sorted([MAINTAIN, *of_domains])


@given(registry=domains())
@settings(
    max_examples=15,
    phases=[Phase.generate],  # an example takes half a second: a smaller one would be sought for minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_dags_of_any_domain_arrive_with_what_was_declared(registry: Registry, tmp_path: Path) -> None:
    from twofold.status.parts.unloaded_dags import declared_dags

    [domain] = registry.domains
    arrived = sent_to_the_parent(registry, tmp_path)
    assert sorted(arrived) == sorted([MAINTAIN, *declared_dags(registry, domain)])
    inlets = _inlets(arrived[f"{domain}.reconcile"])
    for topic in registry.topics.values():
        columns = inlets[topic.full_name]["columns"]
        assert columns == {name: topic.schema[name][:] for name in topic.schema}
        assert inlets[topic.full_name]["description"] == topic.description


def _inlets(dag: Mapping[str, Any]) -> dict[str, Any]:
    """Name of an asset that a task of the DAG reads -> what the asset says."""
    tasks = [task["__var"] for task in dag["tasks"]]
    assets = [inlet["__var"] for task in tasks for inlet in task.get("inlets", [])]
    return {asset["name"]: asset["extra"] for asset in assets}


def test_a_domain_whose_dags_cannot_be_stored_takes_no_other_down(tmp_path: Path) -> None:
    """One value that Airflow's processor cannot encode ended it, without an import error, for all domains."""
    from twofold.dags.sound_dags import sound_dags

    class Team(str):
        """A text, but of a type that no encoder knows."""

    broken = load(written(tmp_path, {"plant/readings.py": TOPIC_FILE, "plant/newest.py": TABLE_FILE}))
    table = broken.tables["plant.newest"]
    odd = replace(table, owner=Team("sensors"))
    flights = load().restricted_to(["flights"])
    both = Registry({**flights.topics, **broken.topics}, {**flights.tables, odd.full_name: odd}, {}, [])
    for _ in range(2):  # the second time nothing that could be stored is checked again
        made = sound_dags(both, Settings(home=tmp_path / "home"))
        assert list(made.faults) == ["plant"]
        assert "plant: Airflow cannot load its DAGs: " in made.faults["plant"].message
        assert "Team" in made.faults["plant"].message
        assert {dag.dag_id.partition(".")[0] for dag in made.dags} == {"flights", MAINTAIN}


def test_dags_are_checked_again_once_a_declaration_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.dags import sound_dags

    checked: list[str] = []
    monkeypatch.setattr(sound_dags, "require_storable", lambda dag: checked.append(dag.dag_id))
    registry = load().restricted_to(["flights"])
    for digest, expected in (("as it was", True), ("as it was", False), ("changed", True)):
        checked.clear()
        monkeypatch.setattr(sound_dags, "_digest", lambda _, digest=digest: digest)
        sound_dags.sound_dags(registry, Settings(home=tmp_path))
        assert bool(checked) == expected


def test_the_import_error_names_the_domain(tmp_path: Path) -> None:
    """As Airflow runs the two files, in a process of their own."""
    said = {
        "declaration_errors": "plant: Airflow cannot load its DAGs",
        "generate_dags": "['flights']",
    }
    for module, expected in said.items():
        code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from twofold.dags import table_dags
make = table_dags.make_dags
def failing(registry, domain, *given, **more):
    if domain == "shop":
        raise ValueError("on purpose")
    yield from make(registry, domain, *given, **more)
table_dags.make_dags = failing
from twofold.dags import {module} as made
print(sorted({{name.partition(".")[0] for name in vars(made) if "." in name}}))
"""
        environment = {**os.environ, "TWOFOLD_HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow")}
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert expected.replace("plant", "shop") in ran.stdout + ran.stderr
        assert (ran.returncode == 0) == (module == "generate_dags")
