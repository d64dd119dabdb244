"""A server is one module and one place in the list: what runs it, looks at it or restarts it asks its `SERVICE`."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import ROOT
from tests.tables.declared import a_table, written
from tests.test_rooms import _targets, modules_in, path_of
from twofold import to_postgres
from twofold.cli.commands.platform_commands import print_addresses
from twofold.cli.services import SERVICES, needed
from twofold.infra.process.service import Service, Wait, jars_of, ports_of
from twofold.infra.project.feature import features
from twofold.infra.project.jars import CONFIGURATIONS
from twofold.infra.project.settings import Settings
from twofold.tables.declare.output import Output
from twofold.tables.declare.registry import Registry, load

FILES = {
    "bank/people.py": """\
    \"\"\"Changes of the people.\"\"\"
    from twofold import changes_of

    TOPIC = changes_of("public.people", columns={"id": "long"}, primary_key=["id"])
    """,
    "bank/clients.py": """\
    \"\"\"Changes of the clients, who are persons.\"\"\"
    from twofold import changes_of, personal

    TOPIC = changes_of(
        "public.clients", columns={"client": "string", "mail": personal("client")}, primary_key=["client"]
    )
    """,
    "shop/refunds.py": """\
    \"\"\"Refunds, as the bank reports them.\"\"\"
    from twofold import from_webhook

    TOPIC = from_webhook(scheme="standard", schema={"cents": "int"})
    """,
}
ALWAYS = ["broker", "stream", "relay", "spark", "airflow"]
EVERY = ["broker", "connect", "database", "stream", "outputs", "relay", "receiver", "spark", "airflow"]


def declared(folder: Path, *names: str) -> Registry:
    return load(written(folder / "tables", {name: FILES[name] for name in names})).require_sound()


def copied(*outputs: Output) -> Registry:
    return Registry({}, {"plant.hours": replace(a_table(), outputs=outputs)})


def names(settings: Settings, registry: Registry) -> list[str]:
    return [service.name for service in needed(settings, registry)]


def of_name(name: str) -> Service[Registry]:
    return next(service for service in SERVICES if service.name == name)


def waits(name: str, settings: Settings, registry: Registry) -> list[str]:
    return [wait.title for wait in of_name(name).ready(settings, registry)]


def sources() -> Iterator[tuple[str, str]]:
    """The modules of the product, by name, with their text."""
    for path in modules_in():
        yield ".".join(path_of(path).with_suffix("").parts), path.read_text("utf-8")


def holders() -> list[str]:
    """The modules that have a `SERVICE`."""
    assigned = ((name, node) for name, text in sources() for node in ast.parse(text).body)
    return [
        name
        for name, node in assigned
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SERVICE"]
    ]


def test_each_service_is_in_the_list_once() -> None:
    held = [importlib.import_module(f"twofold.{name}").SERVICE for name in holders()]
    assert {id(service) for service in held} == {id(service) for service in SERVICES}
    assert [service.name for service in SERVICES] == EVERY
    assert [service.name for service in SERVICES if service.stage == "log"] == ["broker"]


def test_the_module_of_a_service_is_named_by_the_list_alone() -> None:
    """Those of features are named by these, as a text."""
    modules = {name: ROOT / Path(*name.split(".")) for name, _ in sources()}
    own = holders()
    assert len(own) == len(EVERY)
    named = Counter(module for _, text in sources() for module, _ in _targets(text, modules) if module in own)
    brought = Counter(name.removeprefix("twofold.").partition(":")[0] for each in features() for name in each.services)
    assert named + brought == Counter(own)


def test_what_runs_services_knows_no_port_of_one() -> None:
    settings = {port.name for port in ports_of(SERVICES)}
    general = ("infra.process.", "cli.platform_start", "cli.commands.platform_commands", "infra.project.jars")
    found = {
        (name, word)
        for name, text in sources()
        if name.startswith(general)
        for word in settings
        if re.search(rf"""\.{word}\b|["']{word}["']""", text)
    }
    assert found == set()


def test_ports_and_jars_of_a_service_exist() -> None:
    ports = ports_of(SERVICES)
    assert len({port.name for port in ports}) == len(ports) == 7
    known = Settings(home=Path("home"))
    assert [port.name for port in ports if not isinstance(getattr(known, port.name, None), int)] == []
    assert {port.number(known) for port in ports} == {19092, 19093, 18083, 18084, 15432, 15002, 18080}
    assert ports[0].setting == "TWOFOLD_KAFKA_PORT"
    assert set(jars_of(SERVICES)) == {"broker", "connect", "spark"} < set(CONFIGURATIONS)


@pytest.mark.parametrize("name", EVERY)
def test_programs_are_called_after_their_service(
    name: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.infra.project.jars.ensure", lambda *_: None)
    service, every = of_name(name), declared(tmp_path, *FILES)
    registry = Registry(every.topics, copied(to_postgres()).tables)
    (settings.home / "database").mkdir(parents=True)  # the server's user enters it
    made = [program.name for program in service.programs(settings, registry)]
    assert made != []
    assert [each for each in made if each != name and not each.startswith(f"{name}-")] == []
    assert [port for port in service.ports if port.program not in made] == []


def test_only_what_is_declared_is_needed(settings: Settings, tmp_path: Path) -> None:
    assert names(settings, load().restricted_to(["flights"])) == ALWAYS
    assert names(settings, copied()) == ALWAYS
    assert names(settings, declared(tmp_path / "1", "bank/people.py")) == sorted(
        [*ALWAYS, "connect", "database"], key=EVERY.index
    )
    assert names(settings, declared(tmp_path / "2", "shop/refunds.py")) == sorted(
        [*ALWAYS, "receiver"], key=EVERY.index
    )
    assert names(settings, copied(to_postgres())) == sorted([*ALWAYS, "database", "outputs"], key=EVERY.index)
    assert names(settings, load().restricted_to(["shop"])) == EVERY
    assert not settings.home.exists(), "to ask prepares nothing"


def test_nothing_is_waited_for_that_is_not_declared(settings: Settings) -> None:
    registry = load().restricted_to(["flights"])
    for name in ("connect", "receiver", "database", "relay", "outputs"):
        assert waits(name, settings, registry) == []
    assert waits("stream", settings, registry) == ["Stream of the domain flights"]
    assert not settings.home.exists()


def test_a_server_of_yours_is_waited_for_but_not_started(settings: Settings, tmp_path: Path) -> None:
    yours = replace(settings, bootstrap="b:9092", database="postgresql://me:secret@db/shop", spark="sc://spark")
    registry = declared(tmp_path, "bank/people.py")
    assert names(yours, registry) == ["connect", "stream", "relay", "airflow"]
    assert [port.name for port in ports_of(needed(yours, registry))] == ["connect_port", "airflow_port"]
    assert waits("broker", yours, registry) == ["Kafka broker at b:9092"]
    assert waits("connect", yours, registry) == ["Captured database and Kafka Connect"]
    assert waits("database", yours, registry) == waits("spark", yours, registry) == []


def test_a_copy_needs_the_database_unless_it_has_a_destination(settings: Settings) -> None:
    ours, elsewhere = copied(to_postgres()), copied(to_postgres(destination="reports"))
    assert [
        ("database" in names(settings, each), "outputs" in names(settings, each)) for each in (ours, elsewhere)
    ] == [
        (True, True),
        (False, True),
    ]
    assert [waits("database", settings, each) for each in (ours, elsewhere)] == [["Database outputs"], []]
    captured_elsewhere = replace(settings, database="postgresql://me:secret@db/shop")
    assert "database" in names(captured_elsewhere, ours)
    [program] = of_name("outputs").programs(settings, elsewhere)
    assert (program.name, program.command[-2:]) == ("outputs", ["outputs", "follow"])


def test_only_the_jars_of_services_that_run_are_needed(settings: Settings, tmp_path: Path) -> None:
    assert set(jars_of(needed(settings, copied()))) == {"broker", "spark"}
    yours = replace(settings, bootstrap="b:9092")
    assert jars_of(needed(yours, copied())) == ["spark"]
    assert set(jars_of(needed(yours, declared(tmp_path, "bank/people.py")))) == {"broker", "connect", "spark"}
    assert jars_of(needed(yours, copied(), without=["stream", "spark"])) == []


@pytest.mark.parametrize("without", [[], ["airflow"]])
def test_addresses_are_those_of_what_runs(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, without: list[str]
) -> None:
    monkeypatch.setattr("twofold.cli.commands.platform_commands.out._width", 400)
    lines = ["Webhooks", "Database", "Kafka", "Spark", "Query", "Watch", "Stop"]
    print_addresses(settings, load().restricted_to(["shop"]), without=without)
    printed = [line[2:11].strip() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert [name for name in printed if name] == ([] if without else ["Airflow", "Page"]) + lines


def test_the_early_wait_is_that_for_a_warm_server(settings: Settings) -> None:
    registry = load()
    early: list[Wait] = [wait for service in SERVICES for wait in service.ready(settings, registry) if wait.early]
    assert [wait.title for wait in early] == ["Spark server at 127.0.0.1:15002"]
