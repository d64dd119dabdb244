"""Sessions for batch work: thin clients of a Spark Connect server, or sessions in this process without a server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twofold.infra import COMMAND
from twofold.infra.errors import BadSetting, ProcessFailed, SparkUnreachable, TwofoldError
from twofold.infra.process import supervisor
from twofold.infra.process.ports import HOST
from twofold.infra.process.readiness import until_answered
from twofold.infra.project.settings import IN_PROCESS
from twofold.infra.spark import connect_server
from twofold.infra.spark.spark_session import MEANING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

_RESTART_S = 60.0  # how long a command waits for a server that the supervisor is starting
_LOST = (
    "SESSION_NOT_FOUND",
    "SESSION_CLOSED",
    "SESSION_CHANGED",
    "server side session identifier",  # of an answer by a server that was started since
    "NO_ACTIVE_SESSION",  # in the first request of a client after one of these
    "OPERATION_NOT_FOUND",
    "RESPONSE_ALREADY_RECEIVED",
    "RETRIES_EXCEEDED",
    "UNAVAILABLE",
)


def open_session(settings: Settings, name: str) -> SparkSession:
    """Opens a Spark session for one command; it has its own settings, and `stop` cancels its running jobs.

    If `TWOFOLD_SPARK` is empty, it is one of the supervised server, or in this process while the platform is down.

    Raises:
        SparkUnreachable: there is a server, and it does not answer. Retryable.
        MissingTool: in this process: no Java, or jars that cannot be fetched.
    """
    endpoint = find_endpoint(settings)
    if endpoint is None:
        from twofold.infra.spark.spark_session import session

        return session(settings, f"twofold {name}")
    return connect(settings, endpoint, name)


def find_endpoint(settings: Settings) -> str | None:
    """Returns the connection string of the Connect server for batch work; None if it runs in this process."""
    if settings.spark:
        return None if settings.spark == IN_PROCESS else settings.spark
    if not any(process.name == connect_server.NAME for process in supervisor.state(settings)):
        return None
    return connect_server.url(settings)


def connect(settings: Settings, endpoint: str, name: str) -> SparkSession:
    """Opens a session on a Connect server.

    Raises:
        BadSetting: it refuses the token, or does not keep the time zone and the ANSI mode of all other sessions.
        SparkUnreachable: it does not answer. Retryable.
    """
    _wait_listening(endpoint)
    # pyspark builds every expression of a process either for a server or for a JVM of its own.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    with naming_lost_server():
        spark: Any = RemoteSession.builder.remote(endpoint).create()
        # The default goes on for ten minutes; a server that was restarted no longer knows the session anyway.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=5_000)])
        try:
            _keep_meaning(spark.conf)
            spark.conf.set("spark.sql.shuffle.partitions", str(settings.shuffle_partitions))
            # Jobs of one session share the cores fairly with those of others.
            spark.conf.set("spark.scheduler.pool", f"{name}-{spark.session_id}")
        except Exception:
            spark.client.close()  # or it asks the server again when this process ends
            raise
    return spark  # type: ignore[no-any-return]


def _keep_meaning(conf: Any) -> None:
    """Sets the session settings that change the results of queries, whatever the server's configuration.

    Raises:
        BadSetting: it does not take one, or does not keep it.
    """
    from pyspark.errors import AnalysisException

    for name, value in MEANING.items():
        try:
            kept = conf.get(name)
            if str(kept).lower() != value.lower():
                conf.set(name, value)
                kept = conf.get(name)
        except AnalysisException as error:
            raise _other_meaning(name, value, str(error).partition("\n")[0]) from error
        if str(kept).lower() != value.lower():
            raise _other_meaning(name, value, f"it has {kept}")


def _other_meaning(name: str, value: str, came: str) -> BadSetting:
    return BadSetting(
        f"The Spark endpoint in TWOFOLD_SPARK does not keep {name}={value}: {came}. Rows would differ from those that "
        "streams write: days of another zone, nulls where there is an error.",
        hint="Use an endpoint whose sessions may set it, or TWOFOLD_SPARK=local.",
    )


@contextmanager
def naming_lost_server() -> Iterator[None]:
    """Turns connection errors of a Connect server into `SparkUnreachable`, which is retryable."""
    try:
        yield
    except Exception as error:
        import grpc

        causes = list(_causes(error))
        codes = {cause.code() for cause in causes if isinstance(cause, grpc.RpcError) and hasattr(cause, "code")}
        if grpc.StatusCode.UNAUTHENTICATED in codes:
            raise BadSetting(
                "The Spark server refuses the token.",
                hint=f"`{COMMAND} spark --url` prints a connection string with it.",
            ) from error
        text = " ".join(str(cause) for cause in causes if type(cause).__module__.startswith(("pyspark", "grpc")))
        if grpc.StatusCode.UNAVAILABLE not in codes and not any(word in text for word in _LOST):
            raise
        raise SparkUnreachable(
            f"The Spark server ended, or does not answer ({next(filter(text.__contains__, _LOST), 'UNAVAILABLE')}).",
            hint=f"Run the command again; commits are whole or absent. `{COMMAND} status` shows the process `spark`.",
        ) from error


@contextmanager
def failing_alone(name: str, failures: list[TwofoldError]) -> Iterator[None]:
    """Catches any error of one item and adds it to `failures` under the item's name, so that the others continue.

    Raises:
        SparkUnreachable: the others cannot continue either.
    """
    try:
        with naming_lost_server():
            yield
    except SparkUnreachable:
        raise
    except TwofoldError as error:
        failures.append(error)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        failure = TwofoldError(
            f"{name}: {type(error).__name__}: {lines[0] if lines else 'without a message'}",
            hint=f"Look at its function and at its rows; `{COMMAND} --debug COMMAND` shows where it was raised.",
        )
        failure.__cause__ = error
        failures.append(failure)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _wait_listening(endpoint: str) -> None:
    """Waits for a server that is still starting, or that its supervisor restarts.

    gRPC would retry for ten minutes.
    """
    address = urlsplit(endpoint.split(";", 1)[0])
    host, port = address.hostname or HOST, address.port or 15_002

    def knock() -> None:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError as error:
            raise SparkUnreachable(
                f"The Spark server does not answer at {host}:{port}.",
                hint=f"`{COMMAND} status` shows the process `spark`; TWOFOLD_SPARK=local does without it.",
            ) from error

    until_answered(knock, SparkUnreachable, _RESTART_S)


def wait_warm(settings: Settings, *, is_new: bool = True) -> None:
    """Waits until the server answers, and runs some typical work on a new one, to speed up the first command.

    Raises:
        ProcessFailed: it does not answer; names its log.
    """
    from twofold.infra.spark.typical_work import warm_up

    try:
        spark = connect(settings, connect_server.url(settings), "warm-up")
    except SparkUnreachable as error:
        raise ProcessFailed(error.message, hint=f"See {settings.logs / f'{connect_server.NAME}.log'}.") from error
    try:
        if is_new:
            warm_up(spark, settings.home / "spark" / "warm-up")
    finally:
        spark.stop()
