"""The DAGs of all domains: they load, fast, and are what the declarations say."""

from __future__ import annotations

import copy
import importlib.metadata
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import ROOT
from tests.tables.declared import TABLE_FILE, TOPIC_FILE, edited, written
from twofold.dags.operators.params import audit_topic_arguments, awaited_arguments, backfill_arguments
from twofold.infra.airflow.dag_names import MAINTAIN, OF_TABLES, OF_TOPICS
from twofold.infra.errors import BadArgument
from twofold.infra.project.chosen_domains import choose_domains
from twofold.infra.project.settings import Settings
from twofold.status.parts.unloaded_dags import declared_dags
from twofold.tables.declare.registry import load

BACKFILL = "backfill.flights"
ANNOUNCED = ("reconcile", BACKFILL, "replay", "redrive")
REWRITES = (BACKFILL, "replay", "redrive", "repair", "rebuild")
SPARK_TASKS = [
    ("reconcile", "look"),
    ("audit", "look"),
    ("quality", "check"),
    ("audit_topic", "look"),
    *((kind, task) for kind in REWRITES for task in ("preview", "publish")),
    ("recover", "recover"),
]

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG


def dags_of(domain: str) -> list[str]:
    return sorted(declared_dags(load(), domain))


@pytest.fixture(scope="module")
def bag() -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(ROOT / "dags"), safe_mode=True)


@pytest.fixture(scope="module")
def dags(bag: DagBag) -> dict[str, DAG]:
    return dict(bag.dags)


def test_every_dag_loads(bag: DagBag) -> None:
    assert bag.import_errors == {}
    assert sorted(bag.dag_ids) == sorted([MAINTAIN, *(name for domain in load().domains for name in dags_of(domain))])


def test_only_domains_that_run_have_dags(home: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    choose_domains(Settings(home=home), ["shop"])
    assert sorted(DagBag(str(ROOT / "dags"), safe_mode=True).dag_ids) == [MAINTAIN, *dags_of("shop")]


def test_airflow_parses_two_files_only(bag: DagBag) -> None:
    assert sorted(Path(file).name for file in bag.file_last_changed) == ["declaration_errors.py", "generate_dags.py"]


def test_parsing_loads_no_engine() -> None:
    load()  # what follows from the functions is kept now, as any command does
    script = """
import sys
import airflow.sdk
before = set(sys.modules)
import twofold.dags.generate_dags
heavy = {"pyspark", "kafka", "deltalake", "duckdb", "pandas", "pyarrow", "great_expectations", "streaming", "batch"}
print(sorted({name.split(".")[0] for name in set(sys.modules) - before} & heavy))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip().splitlines()[-1] == "[]"


def test_a_task_makes_its_own_dag_alone() -> None:
    from twofold.dags.table_dags import make_dags

    for name in ("flights.reconcile", "flights.backfill.flights", "flights.replay"):
        assert [dag.dag_id for dag in make_dags(load(), "flights", only=name)] == [name]
    assert list(make_dags(load(), "flights", only="shop.reconcile")) == []


PERSONS = '''
    """Logins."""
    from twofold import Topic, personal
    TOPIC = Topic(
        schema={"id": "int", "customer": "string", "at": "timestamp", "mail": personal("customer")},
        event_time="at", message_key="customer", dedup_keys=["id"],
    )
    '''


def test_a_domain_with_persons_has_a_dag_that_asks_before_it_forgets(tmp_path: Path) -> None:
    from twofold.dags.sound_dags import require_storable
    from twofold.dags.table_dags import make_dags

    registry = load(written(tmp_path, {"bank/logins.py": PERSONS}))
    assert "bank.forget" in declared_dags(registry, "bank")
    [dag] = make_dags(registry, "bank", only="bank.forget")
    require_storable(dag)
    preview, approve, forget = (dag.get_task(name) for name in ("preview", "approve", "forget"))
    assert (preview.downstream_task_ids, approve.downstream_task_ids) == ({"approve"}, {"forget"})
    ref = "0f" * 32
    assert preview.arguments({"params": {"ref": ref}}) == ["--ref", ref, "--certificate"]
    assert forget.arguments({"params": {"ref": ref}}) == ["--ref", ref, "--now", "--yes"]
    with pytest.raises(BadArgument, match="expected 64 hexadecimal digits") as refused:
        forget.arguments({"params": {"ref": "4711"}})
    assert "4711" not in str(refused.value)
    assert "flights.forget" not in dags_of("flights")


@pytest.mark.parametrize(("kind", "due"), [("audit", (3, 40)), ("audit_topic", (4, 40))])
def test_the_first_audit_of_a_home_is_the_next_one(
    dags: dict[str, DAG], monkeypatch: pytest.MonkeyPatch, kind: str, due: tuple[int, int]
) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables import trigger
    from airflow.timetables.base import TimeRestriction

    stored = DagSerialization.from_dict(DagSerialization.to_dict(dags[f"flights.{kind}"]))
    sunday = datetime(2026, 11, 29, *due, tzinfo=UTC)
    monkeypatch.setattr(trigger, "utcnow", lambda: sunday + timedelta(minutes=1))
    new: Any = TimeRestriction(earliest=None, latest=None, catchup=False)
    first = stored.timetable.next_dagrun_info_v2(last_dagrun_info=None, restriction=new)
    assert first is not None
    assert first.run_after == sunday + timedelta(days=1 if kind == "audit" else 7)


def test_a_backfill_takes_days_on_demand_and_never_by_itself(dags: dict[str, DAG]) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import TimeRestriction

    stored = DagSerialization.from_dict(DagSerialization.to_dict(dags["flights.backfill.flights"]))
    january = [datetime(2013, 1, day, tzinfo=UTC) for day in (5, 7)]
    runs = list(stored.iter_dagrun_infos_between(*january))
    assert [run.partition_key for run in runs] == ["2013-01-05", "2013-01-06", "2013-01-07"]
    ever: Any = TimeRestriction(earliest=january[0], latest=None, catchup=True)
    assert stored.timetable.next_dagrun_info_v2(last_dagrun_info=None, restriction=ever) is None
    assert stored.timetable.summary == "on demand, by day"


def test_days_are_of_tables_whose_rows_have_a_time_and_of_no_other_dag(dags: dict[str, DAG]) -> None:
    timed = {f"{t.domain}.backfill.{t.name}" for t in load().tables.values() if t.event_time}
    periodic = {name for name, dag in dags.items() if "backfill" in name and dag.schedule is not None}
    assert timed == periodic
    assert timed < {name for name in dags if "backfill" in name}, "and some tables have none"
    refuses = {name for name, dag in dags.items() if "backfill" not in (dag.allowed_run_types or {"backfill"})}
    assert refuses == {name for name in dags if ".backfill." not in name}


def test_the_form_of_a_backfill_proposes_the_newest_closed_day() -> None:
    from twofold.dags.operators.closed_days import Days
    from twofold.dags.table_dags import make_dags

    days = {"flights.flights": Days(date(2013, 1, 1), date(2013, 2, 4), date(2013, 2, 3))}
    [dag] = make_dags(load(), "flights", days, only="flights.backfill.flights")
    meant = copy.deepcopy(dag.params).validate()
    assert backfill_arguments(meant, "flights.flights") == [
        "flights.flights", "--start", "2013-02-03T00:00:00+00:00", "--end", "2013-02-04T00:00:00+00:00",
    ]  # fmt: skip
    assert "rows from 2013-01-01 to 2013-02-04" in str(dag.params.get_param("start").description)


def test_no_file_of_the_folder_bears_the_name_of_a_package() -> None:
    """Airflow puts the folder itself on the path: `dags/quality.py` would be imported in place of the room."""
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    taken = set(importlib.metadata.packages_distributions()) | set(sys.stdlib_module_names) | rooms
    own = {path.stem for path in (ROOT / "dags").iterdir() if path.suffix == ".py" and path.stem != "__init__"}
    assert own & taken == set()


@pytest.mark.parametrize(
    ("dag_id", "schedule"),
    [
        ("flights.stream", "* * * * *"),
        ("flights.reconcile", "*/15 * * * *"),
        ("flights.audit", "40 3 * * *"),
        ("flights.audit_topic", "40 4 * * 0"),
        ("flights.rebuild", None),
        (MAINTAIN, "20 2 * * *"),
    ],
)
def test_schedules(dags: dict[str, DAG], dag_id: str, schedule: str | None) -> None:
    given: object = dags[dag_id].schedule
    assert getattr(given, "expression", given) == schedule


@pytest.mark.parametrize("kind", ["stream", *OF_TABLES, *OF_TOPICS, BACKFILL])
def test_a_dag_runs_once_at_a_time_and_says_what_to_do_when_it_fails(dags: dict[str, DAG], kind: str) -> None:
    dag = dags[f"flights.{kind}"]
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert "## When it fails" in (dag.doc_md or "")
    assert dag.tags == {"twofold", "flights", kind.partition(".")[0]}
    owners = {table.full_name: table.owner or "flights" for table in load().in_order("flights")}
    own = owners["flights.flights"] if kind == BACKFILL else "flights"
    assert all(task.owner == owners.get(task.task_id, own) for task in dag.tasks)
    assert all(task.on_failure_callback for task in dag.tasks)


@pytest.mark.parametrize(
    "given",
    [
        {"start": "2013-01-05T00:00:00Z", "end": "2013-01-06T00:00:00Z"},
        {"everything": True},
    ],
)
def test_the_form_of_a_backfill_takes_a_range_or_all_rows(dags: dict[str, DAG], given: dict[str, object]) -> None:
    params = copy.deepcopy(dags["flights.backfill.flights"].params)
    params.update(given)
    meant = params.validate()
    assert backfill_arguments(meant, "flights.flights")[0] == "flights.flights"
    assert {name: meant[name] for name in given} == given


def test_a_scheduled_audit_of_topics_takes_all_of_them(dags: dict[str, DAG]) -> None:
    meant = copy.deepcopy(dags["flights.audit_topic"].params).validate()
    topics = ["flights.departures", "flights.weather"]
    assert audit_topic_arguments(meant, topics) == topics
    assert awaited_arguments(meant, topics) == []


@pytest.mark.parametrize(("kind", "reads"), [("replay", "preview"), ("audit_topic", "look")])
def test_a_range_is_waited_for_without_a_slot_of_spark(dags: dict[str, DAG], kind: str, reads: str) -> None:
    dag = dags[f"flights.{kind}"]
    sensor: Any = dag.get_task("range")
    assert (sensor.mode, sensor.pool_slots) == ("reschedule", 1)
    assert dag.get_task(reads).upstream_task_ids == {"range"}


def test_reconcile_works_on_a_table_after_the_tables_that_it_reads(dags: dict[str, DAG]) -> None:
    tables = {task.task_id for task in dags["flights.reconcile"].tasks if task.task_id.startswith("flights.")}
    upstream = {task.task_id: set(task.upstream_task_ids) for task in dags["flights.reconcile"].tasks}
    assert upstream == {
        "look": set(),
        "announce": tables,
        "all_right": tables,
        "flights.airport_weather": {"look"},
        "flights.delays_by_hour": {"look"},
        "flights.flights": {"look"},
        "flights.airborne_now": {"flights.flights"},
        "flights.busiest_routes": {"look"},
        "flights.carrier_days": {"flights.flights"},
        "flights.delay_trend": {"flights.delays_by_hour"},
        "flights.distinct_planes": {"flights.flights"},
        "flights.flights_in_weather": {"look"},
        "flights.missed_turnarounds": {"flights.flights"},
        "flights.plane_days": {"look"},
    }


def test_owner_tags_and_freshness_of_a_table_reach_its_tasks(tmp_path: Path) -> None:
    from twofold.dags.table_dags import make_dags

    declared = edited(
        edited(TABLE_FILE, "@table(", '@table(owner="sensors@plant", tags=["sums"], freshness="1 minute", '),
        "    return",
        '    """The newest.\n\n    sensor: which it is\n    """\n    return',
    )
    registry = load(written(tmp_path, {"plant/readings.py": TOPIC_FILE, "plant/newest.py": declared}))
    made: dict[str, Any] = {dag.dag_id: dag for dag in make_dags(registry, "plant")}
    assert made["plant.stream"].tags == {"twofold", "plant", "stream", "sums"}
    task = made["plant.reconcile"].get_task("plant.newest")
    assert task.owner == "sensors@plant"
    assert "Owner: sensors@plant. Fresh within 1 minute." in task.doc_md
    assert "- `sensor`: which it is" in task.doc_md
    assert made["plant.audit"].get_task("plant.newest").owner == "sensors@plant"
    assert made["plant.quality"].get_task("plant.newest").owner == "sensors@plant"


def test_two_spark_jobs_do_not_fit_into_the_pool_of_one_machine(dags: dict[str, DAG]) -> None:
    from twofold.infra.airflow.airflow_processes import environment
    from twofold.infra.project.settings import Settings

    slots = int(environment(Settings())["AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT"])
    commands = [dags[f"flights.{kind}"].get_task(task) for kind, task in SPARK_TASKS]
    assert all(slots / 2 < command.pool_slots < slots for command in commands)


def test_tables_are_reconciled_before_history_is_rewritten(dags: dict[str, DAG]) -> None:
    """Airflow takes the task with the greatest weight first: its own, and those of all tasks behind it."""
    weights = {
        kind: sum(task.priority_weight for task in dags[f"flights.{kind}"].tasks) for kind in (*REWRITES, "audit_topic")
    }
    reconcile: Any = dags["flights.reconcile"]
    regular = [reconcile.get_task(name).priority_weight for name in ("flights.flights", "announce")]
    assert min(regular) > max(weights.values())


def test_a_change_of_the_domain_starts_quality_once(dags: dict[str, DAG]) -> None:
    from airflow.sdk import Asset, AssetAlias

    announced = [dags[f"flights.{kind}"].get_task("announce").outlets for kind in ANNOUNCED]
    assert announced == [[AssetAlias(name="flights.changed", group="twofold")]] * len(ANNOUNCED)
    schedule: Any = dags["flights.quality"].schedule
    asset = Asset(name="flights.tables", uri="twofold://flights", group="twofold")
    assert (list(schedule.asset_condition.objects), schedule.timetable.expression) == ([asset], "10 */6 * * *")


@pytest.mark.parametrize(
    ("dag_id", "params"),
    [
        ("flights.repair", {"table": "flights.flight"}),
        ("flights.repair", {}),
        ("flights.backfill.flights", {"start": 7, "end": "2013-01-02T00:00:00Z"}),
        ("flights.backfill.flights", {"everything": "all"}),
        ("flights.replay", {"topic": "flights.departures", "from_offsets": "all"}),
        ("flights.replay", {}),
        ("flights.recover", {"table": "flights.departures"}),
        ("flights.recover", {"table": "flights.flights", "at_most": -1}),
        ("flights.replay", {"topic": "flights.departures", "partitions": "all"}),
        ("flights.replay", {"topic": "flights.departures", "archived": "yes"}),
        ("flights.replay", {"topic": "flights.departures", "wait_min": -1}),
        ("flights.redrive", {}),
        ("flights.redrive", {"topic": "flights.departures", "reason": 7}),
        ("flights.audit_topic", {"topic": "flights.flights"}),
        ("flights.audit_topic", {"wait_min": "long"}),
    ],
)
def test_the_form_refuses_params_that_cannot_be_meant(
    dags: dict[str, DAG], dag_id: str, params: dict[str, object]
) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    given = copy.deepcopy(dags[dag_id].params)
    with pytest.raises(ParamValidationError):  # noqa: PT012 - either step may refuse
        given.update(params)
        given.validate()


@pytest.fixture
def two_domains(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    for domain in ("flights", "trains"):
        shutil.copytree(ROOT / "demo" / "tables" / "flights", folder / domain)
    return folder


def test_a_broken_declaration_takes_down_itself_and_what_reads_it(two_domains: Path) -> None:
    file = two_domains / "trains" / "delays_by_hour.py"
    file.write_text(edited(file.read_text(), 'watermark="2 hours"', 'watermark="2 moons"'))
    registry = load(two_domains)
    faults = registry.faults.values()
    stands = {domain: {t.name for t in registry.in_order(domain)} for domain in registry.domains}
    assert stands["flights"] - stands["trains"] == {"delays_by_hour", "delay_trend"}
    assert [(str(file) in fault.message, "'2 moons'" in fault.message) for fault in faults] == [
        (True, True),
        (False, False),
    ]
    assert [str(file) in str(fault.hint) for fault in faults] == [False, True]


def test_a_fault_is_one_clear_import_error_next_to_the_dags(two_domains: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (two_domains / "trains" / "flights.py").write_text("this is no Python")
    declared = load(two_domains)
    monkeypatch.setattr("twofold.tables.declare.registry.load", lambda: declared)
    bag = DagBag(str(ROOT / "dags"), safe_mode=True)
    assert [Path(file).name for file in bag.import_errors] == ["declaration_errors.py"]
    [error] = bag.import_errors.values()
    assert error.count("BadDeclaration: ") == 1
    assert f"{two_domains / 'trains' / 'flights.py'}, line 1" in error
    fallen = len(load().in_order("flights")) - len(declared.in_order("trains"))
    assert len(bag.dags) == 1 + 2 * len(dags_of("flights")) - fallen


def test_a_new_table_whose_code_is_not_proved_is_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    unordered = edited(TABLE_FILE, "    return readings", '    return readings.dropDuplicates(["sensor"])')
    files = {"plant/readings.py": TOPIC_FILE, "plant/first.py": edited(unordered, "latest", "first")}
    declared = load(written(tmp_path / "tables", files))
    assert (list(declared.faults), list(declared.unproved)) == ([], ["plant.first"])
    monkeypatch.setattr("twofold.tables.declare.registry.load", lambda: declared)
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "home"))
    [error] = DagBag(str(ROOT / "dags"), safe_mode=True).import_errors.values()
    assert "Unproved: " in error
    assert "plant/first.py" in error


def test_all_domains_are_loaded_when_none_has_a_fault(two_domains: Path) -> None:
    registry = load(two_domains)
    assert (registry.domains, registry.faults) == (("flights", "trains"), {})


def test_a_circle_of_tables_leaves_the_others_standing(two_domains: Path) -> None:
    folder = two_domains / "trains"
    for name, reads in {"left": "right", "right": "left"}.items():
        (folder / f"{name}.py").write_text(CIRCULAR.format(name=name, reads=reads))
    registry = load(two_domains)
    assert {Path(str(fault.facts["file"])).stem for fault in registry.faults.values()} == {"left", "right"}
    assert len(registry.tables) == 2 * len(load().in_order("flights"))


CIRCULAR = '''"""A table that reads the other."""

from twofold import table


@table(primary_key=["id"], recompute_by=["id"])
def {name}({reads}):
    return {reads}
'''
