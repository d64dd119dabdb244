"""Opens a platform for work: lake, Delta tables, and a Spark session when one is needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE, Lake, with_comments
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import IN_PROCESS
from twofold.infra.rows.rows import with_null
from twofold.infra.spark.spark_client import naming_lost_server, open_session
from twofold.tables.declare.analysis import require_no_mistake, wrong_types
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OF_EVENTS, OF_QUARANTINE, OFFSET, PARTITION
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import require_proved
from twofold.tables.refresh.derived_rows import declared_columns
from twofold.tables.refresh.events import lost_offsets, transaction_offsets
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

_log = logging.getLogger("twofold.setup")


@dataclass(frozen=True)
class Platform:
    """The open platform that a stream driver or a batch job works with.

    Attributes:
        session: a Spark session, or what starts one when it is needed first.
        faults: table that could not be made -> why.
    """

    session: SparkSession | Callable[[], SparkSession]
    lake: Lake
    registry: Registry
    faults: Mapping[str, BadDeclaration] = field(default_factory=dict)

    @cached_property
    def spark(self) -> SparkSession:
        return _started(self.session)


@contextmanager
def opened(
    settings: Settings,
    name: str,
    domains: Iterable[str],
    *,
    runs_streams: bool = False,
    registry: Registry | None = None,
) -> Iterator[Platform]:
    """Opens a platform whose tables of these domains exist; its Spark session, if needed, ends with the block.

    A table that cannot be made is among `faults`, and stops no other.

    Args:
        runs_streams: the work runs streaming queries, which take a JVM in this process. A stream makes its own table.
        registry: what is declared; None: it is loaded.

    Raises:
        MissingTool: no Java, or the jars were not resolved yet.
        SchemaMismatch: a field of a topic is declared with another type than its events have.
        SparkUnreachable: the Spark server does not answer, or ended meanwhile. Retryable.
    """
    sessions: list[SparkSession] = []
    ending = ExitStack()

    def start() -> SparkSession:
        if not sessions:
            settled = replace(settings, spark=IN_PROCESS) if runs_streams else settings
            sessions.append(open_session(settled, name))
            ending.callback(_stop, sessions[0])
        return sessions[0]

    registry, lake = registry or load(), Lake(settings)
    with naming_lost_server(), ending:
        faults: dict[str, BadDeclaration] = {}
        for domain in dict.fromkeys(domains):
            if runs_streams:
                ensure_topics_of(lake, registry, domain)
                _correct_metadata(lake, registry, domain)
            else:
                faults |= ensure_domain(start, lake, registry, domain)
        yield Platform(start, lake, registry, faults)


def _stop(session: SparkSession) -> None:
    from twofold.infra.spark.spark_session import jvm_exit_code

    if jvm_exit_code() is None:
        session.stop()


def ensure_domain(
    session: SparkSession | Callable[[], SparkSession], lake: Lake, registry: Registry, domain: str
) -> dict[str, BadDeclaration]:
    """Creates what is missing: events and quarantine of each topic, new fields of events, then each table.

    Returns:
        Table that could not be created -> why: its function does not fit its inputs or its own declaration.

    Raises:
        SchemaMismatch: a field of a topic is declared with another type than its events have.
    """
    ensure_topics_of(lake, registry, domain)
    faults: dict[str, BadDeclaration] = {}
    for table in registry.in_order(domain):
        try:
            ensure_table(session, lake, registry, table)
        except BadDeclaration as fault:
            _log.error("not created table=%s error=%s", table.full_name, fault.message)
            faults[table.full_name] = fault
    return faults


def ensure_topics_of(lake: Lake, registry: Registry, domain: str) -> None:
    """Creates events and quarantine of each topic of a domain, or adds their new fields.

    Raises:
        SchemaMismatch: a field of a topic is declared with another type than its events have.
    """
    lost_offsets.ensure(lake)
    transaction_offsets.ensure(lake)
    for topic in registry.domain_topics(domain):
        events = with_comments(events_schema(topic), registry.descriptions.get(topic.full_name, OF_EVENTS))
        lake.ensure(topic.full_name, events, statistics=_statistics_of(topic), description=topic.description)
        lake.extend(topic.full_name, events)
        quarantine = with_comments(QUARANTINE_SCHEMA, OF_QUARANTINE)
        described = f"Records of {topic.full_name} that were refused, with all reasons."
        lake.ensure(topic.full_name + QUARANTINE, quarantine, statistics=[PARTITION, OFFSET], description=described)
        lake.extend(topic.full_name + QUARANTINE, QUARANTINE_SCHEMA)


def _statistics_of(topic: Topic) -> list[str]:
    return list(dict.fromkeys([topic.event_time, topic.message_key, PARTITION, OFFSET, LATE_BY_MS]))


def _correct_metadata(lake: Lake, registry: Registry, domain: str) -> None:
    """Removes untrue bounds written by older versions, and describes topics as they are declared now.

    Once per driver, since it reads each table's log.
    """
    for topic in registry.domain_topics(domain):
        lake.keep_statistics(topic.full_name, _statistics_of(topic))
        lake.describe(topic.full_name, topic.description, registry.descriptions.get(topic.full_name, {}))
    for table in registry.in_order(domain):
        if lake.exists(table.full_name):
            lake.keep_statistics(table.full_name, table.statistics)


def ensure_table(
    session: SparkSession | Callable[[], SparkSession], lake: Lake, registry: Registry, table: Table
) -> None:
    """Creates the table if it does not exist; its inputs must.

    Raises:
        BadDeclaration: its function does not fit its inputs or its own declaration, is not known to give one result,
            or an input is not there.
    """
    if lake.exists(table.full_name):
        return
    require_proved(lake, table, registry)
    missing = [source.full_name for source in registry.upstream(table) if not lake.exists(source.full_name)]
    if missing:
        raise BadDeclaration(
            f"tables/{table.domain}/{table.name}.py: it reads {', '.join(missing)}, which could not be created.",
            hint=f"`{COMMAND} status` shows why.",
        )
    _create(_started(session), lake, registry, table)


def _started(session: SparkSession | Callable[[], SparkSession]) -> SparkSession:
    return session() if callable(session) else session


def _create(spark: SparkSession, lake: Lake, registry: Registry, table: Table) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    try:
        columns = declared_columns(spark, lake, registry, table)
    except BadDeclaration:
        require_no_mistake(spark, registry, table)  # names all mistakes, as `check` does
        raise
    for mistake in wrong_types(table, columns):
        raise mistake
    columns = StructType([StructField(f.name, with_null(f.dataType), f.nullable, f.metadata) for f in columns])
    described = registry.descriptions.get(table.full_name, table.columns)
    schema = with_comments(to_arrow_schema(columns, timezone="UTC"), described)
    lake.ensure(table.full_name, schema, statistics=table.statistics, description=table.description)
