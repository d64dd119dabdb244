"""Feeds a lake, runs its streams and reconciles it, until it kills itself: `python -m tests.chaos.worker LEG SEED`.

A leg begins where the log ended when the one before it died, whatever that had left undone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta

from tests.support.crashes import Executioner, stepped
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.demo.traffic.fault_injection import FaultInjection, Message
from twofold.demo.traffic.producer import messages
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.maintain.table_stream import TableStream
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

FIRST = date(2013, 3, 9)
PARTS_PER_LEG = 2
HOURS_PER_PART = 6
LATE = FaultInjection(hours_share=0.2, duplicate_share=0.05, corrupt_share=0.02)
STEPS = [(Writer, "_commit"), (TableStream, "_note"), (Ledgers, "record_run")]
STEPS_PER_TABLE = 16
"""About as many steps as a leg has for each table: a commit begins or ends, a micro-batch or a run is noted."""


def parts(legs: int) -> Iterator[list[Message]]:
    """What each micro-batch of ingest holds, in so many legs."""
    topics = {t.full_name: t for t in load().domain_topics("flights")}
    count = legs * PARTS_PER_LEG
    end = FIRST + timedelta(days=count * HOURS_PER_PART // 24 + 1)
    sent = messages("flights", FIRST, end, topics, LATE)
    found: list[list[Message]] = [[] for _ in range(count)]
    begin = datetime(FIRST.year, FIRST.month, FIRST.day, 12, tzinfo=UTC)
    for message in sent:
        number = (message.send_at - begin) // timedelta(hours=HOURS_PER_PART)
        if number < count:
            found[max(number, 0)].append(message)
    yield from found


def values(part: list[Message]) -> Mapping[str, list[bytes]]:
    """A micro-batch by topic."""
    found: dict[str, list[bytes]] = {}
    for message in part:
        found.setdefault(message.topic, []).append(message.value)
    return found


def work(world: World, leg: int, tables: list[str]) -> None:
    """Everything up to the end of the leg; what was done before is taken for done."""
    for number, part in enumerate(parts(leg + 1)):
        world.append(values(part))
        if number // PARTS_PER_LEG == leg:
            world.maintain(tables)
            world.reconcile(tables)


if __name__ == "__main__":
    leg, seed, tables = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    settings = Settings.from_environment()
    executioner = Executioner(seed, STEPS_PER_TABLE * len(tables))
    world = World(session(settings, "chaos"), settings, "flights")
    with stepped(executioner.step, STEPS):
        work(world, leg, tables)
    executioner.end()
