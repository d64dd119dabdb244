"""Which Spark a command uses, and which errors of a connection are worth another try; no server is needed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import grpc
import pyspark.sql.connect.proto as proto
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.connect.client import SparkConnectClient

from tests.infra.conftest import free_port
from twofold.infra.errors import BadArgument, BadSetting, SparkUnreachable
from twofold.infra.project.settings import Settings
from twofold.infra.spark import spark_client
from twofold.infra.spark.spark_client import connect, find_endpoint, naming_lost_server
from twofold.infra.spark.spark_session import MEANING


class Refused(grpc.RpcError):
    """What gRPC raises, with one status."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__()
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


def test_a_setting_chooses_the_spark_that_commands_use(settings: Settings) -> None:
    assert find_endpoint(settings) is None, "the platform is down"
    assert find_endpoint(replace(settings, spark="local")) is None
    assert find_endpoint(replace(settings, spark="sc://cluster:15002")) == "sc://cluster:15002"


@pytest.mark.parametrize(
    ("status", "expected"),
    [(grpc.StatusCode.UNAVAILABLE, SparkUnreachable), (grpc.StatusCode.UNAUTHENTICATED, BadSetting)],
)
def test_a_lost_server_and_a_refused_token_are_named(status: grpc.StatusCode, expected: type[Exception]) -> None:
    with pytest.raises(expected), naming_lost_server():
        raise Refused(status)


def test_a_lost_server_is_named_though_another_error_was_made_of_it() -> None:
    def analyse() -> None:
        try:
            raise Refused(grpc.StatusCode.UNAVAILABLE)
        except grpc.RpcError as error:
            raise RuntimeError("the function fails") from error

    with pytest.raises(SparkUnreachable), naming_lost_server():
        analyse()


def test_a_client_that_has_met_a_server_started_since_names_it_lost() -> None:
    client = SparkConnectClient(f"sc://127.0.0.1:{free_port()}")
    client._server_session_id = "before"
    answer = proto.AnalyzePlanResponse(session_id=client._session_id, server_side_session_id="since")
    with pytest.raises(SparkUnreachable), naming_lost_server():
        client._verify_response_integrity(answer)
    with pytest.raises(SparkUnreachable), naming_lost_server():
        client.get_configs("spark.app.name")


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(BadArgument, match="UNAVAILABLE seats"), naming_lost_server():
        raise BadArgument("UNAVAILABLE seats")


def test_an_endpoint_that_does_not_answer_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_client, "_RESTART_S", 0.3)
    began = time.monotonic()
    with pytest.raises(SparkUnreachable, match="does not answer at localhost:"):
        connect(settings, f"sc://localhost:{free_port()}/;token=some", "test")
    assert time.monotonic() - began < 10


def test_a_token_is_made_once_for_a_home(settings: Settings, tmp_path: Path) -> None:
    from twofold.infra.spark.connect_server import token

    other = replace(settings, home=tmp_path / "other")
    assert token(settings) == token(settings) != token(other)
    assert (settings.home / "spark" / "token").stat().st_mode & 0o077 == 0


class Kept(dict[str, str]):
    """Settings of a session; those of `fixed` stay as they are, and those of `refused` raise."""

    def __init__(self, *, fixed: str = "", refused: str = "") -> None:
        super().__init__({"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"})
        self._fixed, self._refused = fixed, refused

    def set(self, name: str, value: str) -> None:
        if name == self._refused:
            raise AnalysisException(f"[CANNOT_MODIFY_CONFIG] {name}")
        if name != self._fixed:
            self[name] = value


def test_any_endpoint_has_the_settings_that_decide_on_rows() -> None:
    conf = Kept()
    spark_client._keep_meaning(conf)
    assert conf == MEANING


def test_an_endpoint_that_keeps_its_own_zone_or_mode_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"does not keep spark\.sql\.session\.timeZone=UTC: it has America/New_York"):
        spark_client._keep_meaning(Kept(fixed="spark.sql.session.timeZone"))
    with pytest.raises(BadSetting, match=r"spark\.sql\.ansi\.enabled=true: .*CANNOT_MODIFY_CONFIG"):
        spark_client._keep_meaning(Kept(refused="spark.sql.ansi.enabled"))
