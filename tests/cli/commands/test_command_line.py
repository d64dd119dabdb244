"""What every command has in common: help, exit codes, errors, refusals before anything is touched."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.support.loaded_modules import loading_none_of
from twofold.cli.__main__ import COMMANDS
from twofold.infra.errors import BrokerUnreachable
from twofold.infra.project.feature import features

NAMES = [function.__name__.replace("_", "-") for functions in COMMANDS.values() for function in functions]


def test_help_lists_every_command_with_a_sentence(cli: Cli) -> None:
    ran = cli("--help")
    assert ran.code == 0
    for name in [*NAMES, "new"]:
        assert f"│ {name} " in ran.out


def test_a_command_of_a_feature_is_in_its_panel_or_follows_another() -> None:
    listed = [getattr(function, "__name__", "") for functions in COMMANDS.values() for function in functions]
    places = {place for feature in features() for place in feature.commands}
    assert places <= {*COMMANDS, *listed, "new"}
    own = next(functions for panel, functions in COMMANDS.items() if panel == "Look at the data")
    names = [function.__name__ for function in own]
    assert names[names.index("show") : names.index("mcp") + 2] == ["show", "sql", "spark", "notebook", "mcp", "as_of"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(cli: Cli, name: str) -> None:
    ran = cli(name, "--help")
    assert ran.code == 0
    assert f"Usage: ./twofold {name}" in ran.out


def test_help_comes_at_once_and_loads_nothing_heavy() -> None:
    heavy = {"pyspark", "airflow", "duckdb", "deltalake", "pyarrow", "pandas", "kafka", "supervisor", "numpy"}
    loading_none_of(heavy, "from twofold.cli.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass")


def test_an_error_is_a_message_with_its_hint_on_stderr(cli: Cli) -> None:
    ran = cli("show", "delay_by_hour")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.splitlines() == ["Error: There is no table 'delay_by_hour'.", "Hint: Did you mean 'delays_by_hour'?"]


def test_with_json_an_error_is_a_document_on_stdout(cli: Cli) -> None:
    ran = cli("show", "delay_by_hour", "--json")
    assert ran.code == 2
    assert ran.err == ""
    assert ran.document["error"] == "There is no table 'delay_by_hour'."
    assert ran.document["hint"] == "Did you mean 'delays_by_hour'?"
    assert ran.document["retryable"] is False


def test_an_error_worth_another_try_says_so_in_its_exit_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise BrokerUnreachable("No broker.")

    monkeypatch.setattr("twofold.infra.process.doctor.examine", away)
    ran = cli("doctor", "--json")
    assert ran.code == 75
    assert ran.document["retryable"] is True


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_of_ours_shows_its_traceback_only_when_asked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("twofold.infra.process.doctor.examine", broken)
    ran = cli(*(["--debug"] if debug else []), "doctor")
    assert ran.code == 1
    assert "ZeroDivisionError: by zero" in ran.err
    assert ("Traceback" in ran.err) is debug


def test_a_setting_that_does_not_exist_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_KAFKAPORT", "1")
    ran = cli("status")
    assert ran.code == 2
    assert "TWOFOLD_KAFKAPORT is not a setting" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["backfill", "delays_by_hour", "--start", "January", "--end", "2013-02-01"], "--start='January'"),
        (["backfill", "delays_by_hour", "--start", "2013-02-01", "--end", "2013-02-01"], "is not before"),
        (["backfill", "nothing", "--start", "2013-01-01", "--end", "2013-02-01"], "There is no table 'nothing'"),
        (["reconcile", "flights.nothing"], "There is no table 'flights.nothing'"),
        (["quality", "flights.nothing"], "There is no table 'flights.nothing'"),
        (["stream", "rail"], "There is no domain 'rail'"),
        (["ingest-once", "rail"], "There is no domain 'rail'"),
        (["maintain-once", "rail"], "There is no domain 'rail'"),
        (["replay", "departure"], "There is no topic 'departure'"),
        (["replay", "departures", "--from", "0:x"], "--from='0:x'"),
        (["replay", "departures", "--from", "0:1,0:2"], "names a partition twice"),
        (["replay", "weather", "--to", "1:5"], "names partition 1"),
        (["replay", "weather", "--partitions", "1"], "names partition 1"),
        (["redrive", "weather", "--partitions", "x"], "--partitions='x'"),
        (["audit", "delays_by_hour", "--from", "5"], "--from, --to and --partitions are of one TOPIC"),
        (["audit", "departures", "weather", "--to", "5"], "--from, --to and --partitions are of one TOPIC"),
        (["traffic", "flights", "--start", "2013-13-01"], "--start='2013-13-01'"),
        (["traffic", "flights", "--speed", "-1"], "--speed='-1'"),
        (["traffic", "flights", "--speed", "nan"], "--speed='nan'"),
        (["traffic", "flights", "--corrupt", "1.5"], "--corrupt=1.5"),
        (["traffic", "rail"], "'rail'"),
        (["demo", "--start", "2013-12-01", "--days", "31"], "the source has 2013-01-01 to 2013-12-31"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_touched(
    cli: Cli, arguments: list[str], message: str, request: pytest.FixtureRequest
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert message in ran.err
    assert not request.getfixturevalue("home").exists()


def test_one_message_when_no_broker_answers(cli: Cli) -> None:
    ran = cli("traffic", "flights")
    assert ran.code == 75
    assert ran.err.startswith("Error: No Kafka broker answers at 127.0.0.1:1 (TWOFOLD_KAFKA_PORT).\nHint: ")


def test_up_names_a_port_that_another_process_holds_and_starts_nothing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("TWOFOLD_CONTROLLER_PORT", str(port))
        ran = cli("up", "--no-airflow")
    assert ran.code == 1
    assert f"Port {port}" in ran.err
    assert "TWOFOLD_CONTROLLER_PORT" in ran.err


def test_down_does_nothing_when_nothing_runs(cli: Cli) -> None:
    assert cli("down").code == 0
