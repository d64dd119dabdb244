"""The process of a domain: runs its ingest and its table queries until it is stopped."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import ProcessFailed, TwofoldError
from twofold.infra.extras import missing_tool
from twofold.infra.kafka.topic_admin import ensure_topics
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.kept_running import KeptRunning, Running, stop_on_signal
from twofold.infra.process.polling_thread import PollingThread
from twofold.infra.spark.spark_client import failing_alone
from twofold.infra.spark.spark_session import jvm_exit_code
from twofold.streaming.maintain.backlog import Backlog
from twofold.streaming.maintain.change_driven import ChangeDrivenStream
from twofold.streaming.maintain.refresh_pace import Pace
from twofold.streaming.maintain.refresh_turns import Turns
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.streaming.query.progress import last_of, note_error
from twofold.streaming.query.scheduler_pool import use_pool
from twofold.streaming.query.step_shares import Shares
from twofold.tables.declare.analysis import require_no_mistake
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import is_accepted, require_proved
from twofold.tables.refresh.events.topic_specs import specs
from twofold.tables.refresh.open_platform import Platform, ensure_table, opened

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings
    from twofold.streaming.ingest.ingest_query import Ingest

_RAISED = re.compile(r"(Caused by: )?[\w.]+(Error|Exception)\b.*: ")
_POLL_S = 0.5
_CALM_S = 1.0
_KEYS_S = 30.0
KEYS = "_keys"
"""The name of what ends keys, among the queries; no table has it."""
_log = logging.getLogger("twofold.driver")


def run(settings: Settings, domain: str, *, tables: Sequence[str] | None = None) -> None:
    """Runs the domain's queries until SIGTERM or SIGINT; each then ends its micro-batch.

    A query that fails, or cannot start, is restarted after a pause that doubles up to a minute; the others continue.
    Faulty declaration files are skipped.

    Args:
        tables: maintain these tables; None: all of the domain.

    Raises:
        BadArgument: a table is not declared.
        BadDeclaration: all files of the domain are faulty.
        BrokerUnreachable: the broker does not answer when the driver starts.
        ProcessFailed: another driver runs this domain, or the JVM ended.
    """
    stop = stop_on_signal()
    with _domain(settings, domain) as platform:
        shares = Shares(os.cpu_count() or 1)
        queries = [
            KeptRunning(f"{domain}.{name}", start, lock, QueryFailures(settings, domain, name))
            for name, start, lock in _starters(platform, domain, tables, shares)
        ]
        while not stop.wait(_POLL_S):
            _require_jvm(domain)
            try:
                for query in queries:
                    query.keep()
            except Exception:
                time.sleep(_POLL_S)  # the JVM's exit code is known soon after it stops answering
                _require_jvm(domain)
                raise
        shares.closing.set()
        for query in queries:
            query.stop()


def _require_jvm(domain: str) -> None:
    """Refuses to continue without a JVM.

    Raises:
        ProcessFailed: the JVM ended.
    """
    if (code := jvm_exit_code()) is not None:
        raise ProcessFailed(
            f"The JVM of the stream of {domain} ended with exit code {code}.",
            hint="Its supervisor starts it again. 3: it needs more memory, TWOFOLD_DRIVER_MEMORY.",
        ) from None


def drain(settings: Settings, domain: str, *, ingest: bool, tables: Sequence[str] | None) -> None:
    """Processes all available input, then stops.

    Args:
        ingest: read the topics.
        tables: maintain these tables, each after its inputs; None: all of the domain.

    Raises:
        BadArgument: the domain has no such table.
        TwofoldError: the failure of the first table that failed; all others were maintained.
    """
    failures: list[TwofoldError] = []
    with _domain(settings, domain) as p:
        chosen = _chosen(p, domain, tables)
        if ingest:
            finish(_ingest(p, domain).start(available_now=True))
        for table in chosen:
            with failing_alone(table.full_name, failures):
                _drain_table(p, table)
    for failure in failures:
        _log.error("not drained: %s", failure.message)
    if failures:
        raise failures[0]


def _drain_table(platform: Platform, table: Table) -> None:
    with exclusive(platform.lake.settings.stream_lock(table.full_name)) as ours:
        if not ours:
            raise ProcessFailed(
                f"The stream of {table.full_name} is being recovered.", hint="Wait until that has ended."
            )
        _ensure(platform, table)
        finish(table_query(platform, table).start(available_now=True))


def _ensure(platform: Platform, table: Table) -> None:
    ensure_table(lambda: platform.spark, platform.lake, platform.registry, table)
    if not is_accepted(platform.lake, table, platform.registry):
        # Its stream will refuse the changed definition until a backfill; a mistake in it is of more use to the author.
        require_proved(platform.lake, table, platform.registry)
        require_no_mistake(platform.spark, platform.registry, table)
    described = platform.registry.descriptions.get(table.full_name, table.columns)
    platform.lake.describe(table.full_name, table.description, described)


def table_query(platform: Platform, table: Table) -> QueryDrivenStream | ChangeDrivenStream:
    """Builds the query that keeps the table fresh, by the table's strategy."""
    kind = ChangeDrivenStream if platform.registry.strategy(table).follows_changes else QueryDrivenStream
    return kind(platform.spark, platform.lake, platform.registry, table)


@contextmanager
def _domain(settings: Settings, domain: str) -> Iterator[Platform]:
    registry = load()
    registry.require_domain(domain)
    with _only_driver(settings, domain), _noting_errors(settings, domain):
        ensure_topics(settings, specs(registry, domain))
        with opened(settings, domain, [domain], runs_streams=True, registry=registry) as platform:
            yield platform


@contextmanager
def _only_driver(settings: Settings, domain: str) -> Iterator[None]:
    with exclusive(settings.driver_lock(domain)) as ours:
        if not ours:
            raise ProcessFailed(
                f"Another driver of the domain {domain} runs in {settings.home}.",
                hint=f"`{COMMAND} status` shows it; `{COMMAND} down` stops it.",
            )
        yield


@contextmanager
def _noting_errors(settings: Settings, domain: str) -> Iterator[None]:
    """Records a failure of the whole driver as a failure of ingest."""
    try:
        yield
    except TwofoldError as error:
        note_error(settings, domain, "ingest", error.message)
        raise


def _chosen(platform: Platform, domain: str, tables: Sequence[str] | None) -> list[Table]:
    """Returns the requested tables of the domain, each after its inputs."""
    registry = platform.registry
    names_of = None if tables is None else {registry.find_table(name).full_name for name in tables}
    return [table for table in registry.in_order(domain) if names_of is None or table.full_name in names_of]


def _starters(
    platform: Platform, domain: str, tables: Sequence[str] | None, shares: Shares
) -> Iterator[tuple[str, Callable[[], Running], Path | None]]:
    """Yields for each query its name, the function that starts it, and the lock held while it runs, if any.

    All tables are created before the first query starts, since its first micro-batches use all cores for a minute.
    """
    for table in _chosen(platform, domain, tables):
        with suppress(TwofoldError):  # its query fails with the same, and reports it
            ensure_table(lambda: platform.spark, platform.lake, platform.registry, table)
    ingest = _ingest(platform, domain, shares)
    yield "ingest", _in_own_pool(platform, f"{domain}.ingest", partial(ingest.start, available_now=False)), None
    pace = _pace(platform, domain, shares)
    for table in _chosen(platform, domain, tables):
        lock = platform.lake.settings.stream_lock(table.full_name)
        start = partial(_start_table, platform, table, pace())
        yield table.name, _in_own_pool(platform, table.full_name, start), lock
    if cover := next((topic.cover for topic in platform.registry.domain_topics(domain) if topic.covered), None):
        end_due = partial(cover.end_due, platform.lake.settings)
        yield KEYS, partial(PollingThread, f"{domain}.{KEYS}", end_due, idle_s=_KEYS_S), None


def _ingest(platform: Platform, domain: str, shares: Shares | None = None) -> Ingest:
    from twofold.streaming.ingest.ingest_query import Ingest  # with the archive, which tests of tables do without

    return Ingest(platform.spark, platform.lake, platform.registry, domain, shares)


def _start_table(platform: Platform, table: Table, pace: Pace) -> Running:
    _ensure(platform, table)
    return table_query(platform, table).start(available_now=False, pace=pace)


def _in_own_pool(platform: Platform, name: str, start: Callable[[], Running]) -> Callable[[], Running]:
    """Wraps a query's start so that its jobs run in a scheduler pool of their own and share the cores fairly."""

    def start_in_pool() -> Running:
        use_pool(platform.spark, name)
        return start()

    return start_in_pool


def _pace(platform: Platform, domain: str, shares: Shares) -> Callable[[], Pace]:
    """Returns a function that gives each table a pace of its own; all share one backlog and its turns."""
    backlog = Backlog(platform.lake, platform.registry)
    topics = [topic.full_name for topic in platform.registry.domain_topics(domain)]

    def is_calm() -> bool:
        return all(backlog.quiet_s(topic) > _CALM_S for topic in topics)

    turns = Turns(os.cpu_count() or 1, is_calm)
    return lambda: Pace(backlog, turns, shares)


@dataclass(frozen=True)
class QueryFailures:
    """The failures of a query, in its progress."""

    settings: Settings
    domain: str
    query: str

    def known(self) -> str:
        return last_of(self.settings, self.domain, self.query).error

    def note(self, error: Exception | None) -> None:
        note_error(self.settings, self.domain, self.query, "" if error is None else _reason(error))


def finish(query: Running) -> None:
    """Waits until the query ends.

    Raises:
        ProcessFailed: it failed; names the cause.
    """
    from pyspark.errors import StreamingQueryException

    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise ProcessFailed(f"The query {query.name} failed: {_reason(error)}") from error


def _reason(error: Exception | None) -> str:
    """Returns the most useful line of a stream's failure: its root cause, which Spark prints last."""
    error = missing_tool(error) or error
    if isinstance(error, TwofoldError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("twofold.infra.errors.")]
    causes = [line for line in lines if _RAISED.match(line)]
    return (ours[:1] or causes[-1:] or lines or ["unknown"])[0][:2_000]
