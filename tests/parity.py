"""The parity test of any table: its stream, corrected, equals its recomputation from the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from tests.worlds import World
from traffic.imperfections import Imperfections
from traffic.replay import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings


def assert_parity(spark: SparkSession, settings: Settings, *tables: str) -> World:
    """Feed two days of real flights, late, repeated and broken, in eight micro-batches with a restart in the middle.

    After reconcile every closed row of the tables, and of those that they read, must equal its recomputation, and a
    second reconcile must change nothing.

    Returns:
        The world as it is then.
    """
    world = World(spark, replace(settings, max_files=1))
    wanted = world.with_inputs(tables)
    topics = {t.full_name: t for t in world.registry.domain_topics(world.domain)}
    sent = list(messages(date(2013, 1, 1), date(2013, 1, 3), topics, Imperfections(hours_share=0.05)))
    for number in world.feed(sent, parts=8):
        if number in (3, 7):
            world.maintain(wanted)
    first = world.reconcile(wanted, verify=True)
    for table in tables:
        assert world.lake.rows(world.registry.find_table(table).full_name) > 0, f"{table} stayed empty"
    unexplained = [outcome for outcome in first if outcome.unexplained]
    assert not unexplained, unexplained
    changed_again = [outcome for outcome in world.reconcile(wanted) if outcome.changed]
    assert not changed_again, changed_again
    return world
