"""Opens a platform for work: its lake, every Delta table that the work may touch, and a session once one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from infra.settings import IN_PROCESS
from infra.spark.client import naming_lost_server, open_session
from tables import gaps, transactions
from tables.declaration import Table
from tables.decode import LATE_BY_MS, OFFSET, PARTITION, QUARANTINE_SCHEMA, events_schema
from tables.derive import derive, input_of
from tables.lake import QUARANTINE, Lake
from tables.ledgers import Ledgers
from tables.registry import Registry, load
from tables.types import with_nullable_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings


@dataclass(frozen=True)
class Platform:
    """What a stream driver or a batch job works with.

    Attributes:
        session: a Spark session, or what starts one when it is needed first.
    """

    session: SparkSession | Callable[[], SparkSession]
    lake: Lake
    registry: Registry

    @cached_property
    def spark(self) -> SparkSession:
        return _started(self.session)


@contextmanager
def opened(settings: Settings, name: str, domains: Iterable[str], *, runs_streams: bool = False) -> Iterator[Platform]:
    """A platform whose tables of these domains exist; its session, where the work needs one, ends with the block.

    Args:
        runs_streams: the work runs streaming queries, which take a JVM in this process.

    Raises:
        BadDeclaration: a table's function does not fit its inputs or its own declaration.
        MissingTool: no Java, or the jars were not resolved yet.
        SparkUnreachable: the Spark server does not answer, or ended meanwhile. Retryable.
    """
    sessions: list[SparkSession] = []
    ending = ExitStack()

    def start() -> SparkSession:
        if not sessions:
            settled = replace(settings, spark=IN_PROCESS) if runs_streams else settings
            sessions.append(open_session(settled, name))
            ending.callback(sessions[0].stop)
        return sessions[0]

    registry, lake = load(), Lake(settings)
    with naming_lost_server(), ending:
        for domain in dict.fromkeys(domains):
            ensure_domain(start, lake, registry, domain)
        yield Platform(start, lake, registry)


def ensure_domain(
    session: SparkSession | Callable[[], SparkSession], lake: Lake, registry: Registry, domain: str
) -> None:
    """Create what is missing: ledgers, events and quarantine of each topic, new fields of events, then each table.

    Raises:
        SchemaMismatch: a field of a topic is declared with another type than its events have.
        BadDeclaration: a table's function does not fit its inputs or its own declaration.
    """
    Ledgers(lake).ensure()
    gaps.ensure(lake)
    transactions.ensure(lake)
    for topic in registry.domain_topics(domain):
        statistics = [topic.event_time, topic.key, PARTITION, OFFSET, LATE_BY_MS]
        lake.ensure(topic.full_name, events_schema(topic), statistics=list(dict.fromkeys(statistics)))
        lake.extend(topic.full_name, events_schema(topic))
        lake.ensure(topic.full_name + QUARANTINE, QUARANTINE_SCHEMA, statistics=[PARTITION, OFFSET])
    for table in registry.in_order(domain):
        if not lake.exists(table.full_name):
            _create(_started(session), lake, registry, table)


def _started(session: SparkSession | Callable[[], SparkSession]) -> SparkSession:
    return session() if callable(session) else session


def _create(spark: SparkSession, lake: Lake, registry: Registry, table: Table) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    strategy, sources = registry.strategy(table), zip(table.inputs, registry.upstream(table), strict=True)
    frames = {name: input_of(s, lake.frame(spark, s.full_name), table, strategy) for name, s in sources}
    schema = with_nullable_parts(to_arrow_schema(derive(table, frames).schema, timezone="UTC"))
    lake.ensure(table.full_name, schema, statistics=table.statistics)
