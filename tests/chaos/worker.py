"""Feeds a lake, runs its streams and reconciles it, until it kills itself: `python -m tests.chaos.worker LEG SEED`.

The platform has no hooks for this: its functions are replaced from outside, in this process only. A leg begins where
the log ended when the one before it died, whatever that had left undone.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

from infra.settings import Settings
from infra.spark import session
from streaming.upkeep import Upkeep
from tables.ledgers import Ledgers
from tables.registry import load
from tables.writer import Writer
from tests.worlds import World
from traffic.imperfections import Imperfections, Message
from traffic.replay import messages

FIRST = date(2013, 3, 9)
PARTS_PER_LEG = 2
HOURS_PER_PART = 6
LATE = Imperfections(hours_share=0.2, duplicate_share=0.05, corrupt_share=0.02)
STEPS_PER_TABLE = 16
"""About as many steps as a leg has for each table: a commit begins or ends, a micro-batch or a run is noted."""


def parts(legs: int) -> Iterator[list[Message]]:
    """What each micro-batch of ingest holds, in so many legs."""
    topics = {t.full_name: t for t in load().domain_topics("flights")}
    count = legs * PARTS_PER_LEG
    end = FIRST + timedelta(days=count * HOURS_PER_PART // 24 + 1)
    sent = messages(FIRST, end, topics, LATE)
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
            world.reconcile(tables, verify=False)


class _Executioner:
    """Kills this process and its JVM somewhat after a step that the seed chooses."""

    def __init__(self, seed: int, steps: int) -> None:
        dice = random.Random(seed)
        self._left, self._delay_s = dice.randrange(steps), dice.choice([0.0, dice.uniform(0, 0.5)])

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            threading.Timer(self._delay_s, self.strike).start() if self._delay_s else self.strike()

    def strike(self) -> None:
        os.killpg(0, signal.SIGKILL)

    def watch(self, owner: type, name: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def stepped(*arguments: object, **named: object) -> object:
            self.step()
            result = method(*arguments, **named)
            self.step()
            return result

        patch.object(owner, name, stepped).start()


if __name__ == "__main__":
    leg, seed, tables = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    settings = Settings.from_environment()
    executioner = _Executioner(seed, STEPS_PER_TABLE * len(tables))
    world = World(session(settings, "chaos"), settings)
    for owner, name in ((Writer, "_commit"), (Upkeep, "_note"), (Ledgers, "record_run")):
        executioner.watch(owner, name)
    work(world, leg, tables)
    executioner.strike()
