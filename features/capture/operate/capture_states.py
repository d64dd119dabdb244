"""State of captured tables; if none is declared, no code of theirs is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from twofold.infra.errors import CaptureFailed
from twofold.infra.process import supervisor
from twofold.infra.project.chosen_domains import relay_name
from twofold.status.parts.snapshot import CaptureState
from twofold_algebra.sql.names import POSTGRES

if TYPE_CHECKING:
    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import Registry

LATE_S = 60
"""A record that waits in an intake for longer is a problem."""


def running_captures(lake: Lake, registry: Registry, now: datetime) -> list[CaptureState]:
    """Returns the states of captured tables while the platform runs, else none.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    return capture_states(lake, registry, now) if supervisor.state(lake.settings) else []


def capture_states(lake: Lake, registry: Registry, now: datetime) -> list[CaptureState]:
    """Returns the states of captured tables; if none is declared, no code of theirs is loaded.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    from twofold.features.capture.captured_topic import captures

    declared, settings = captures(registry), lake.settings
    if not declared:
        return []
    from twofold.features.capture.captured_table import again
    from twofold.features.capture.debezium_connector import state
    from twofold.features.capture.lost_changes import changes_fault

    states = []
    for capture in declared:
        seen = state(settings, capture)
        lost = "" if seen.fault or capture.is_outbox else changes_fault(lake, capture.topic)
        states.append(replace(seen, fault=lost, hint=f"{again(capture.topic)}.") if lost else seen)
    return with_intakes(settings, registry, states, [one.topic for one in declared if one.is_personal], now)


def with_intakes(
    settings: Settings, registry: Registry, states: list[CaptureState], topics: Sequence[str], now: datetime
) -> list[CaptureState]:
    """Adds how many records wait in intakes, and whether one does for long, which the relay of the domain should take.

    Raises:
        BrokerUnreachable: retryable.
    """
    if not topics:
        return states
    from twofold.features.capture.captured_table import INTAKE
    from twofold.infra.kafka.topic_admin import appended_ms, offsets

    bounds = {name: places[0] for name, places in offsets(settings, [name + INTAKE for name in topics]).items()}
    waiting = {name: place.latest - place.earliest for name, place in bounds.items()}
    oldest = appended_ms(settings, {name: {0: bounds[name].earliest} for name, count in waiting.items() if count})
    looked_at = []
    for state in states:
        name = state.topic + INTAKE
        if state.topic in topics:
            state = replace(state, waiting=waiting.get(name, 0))
        waits_s = now.timestamp() - oldest[name][0] / 1_000 if name in oldest else 0
        if waits_s > LATE_S and not state.fault:
            relay = relay_name(registry.topics[state.topic].domain)
            fault = f"{state.waiting:,} records wait to be encrypted, the oldest for {waits_s:.0f} s"
            hint = f"{relay} should do so; {settings.logs / f'{relay}.log'} may say why it does not."
            state = replace(state, fault=fault, hint=hint)
        looked_at.append(state)
    return looked_at


def require_topics_of_slots(settings: Settings, registry: Registry) -> None:
    """Refuses slots that no topic of any domain declares, if a domain that runs captures a table.

    Raises:
        CaptureFailed: names them.
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    from twofold.features.capture.captured_topic import captures
    from twofold.tables.declare.registry import load

    if not captures(registry):
        return
    from twofold.features.capture.debezium_connector import undeclared_slots

    if slots := undeclared_slots(settings, captures(load() if registry.not_run else registry)):
        drops = ", ".join(f"pg_drop_replication_slot({POSTGRES.literal(slot)})" for slot in slots)
        raise CaptureFailed(
            f"no topic is declared for {', '.join(slots)}, and the database keeps its log for each",
            hint=f"SELECT {drops} gives them up; their topics cannot continue then.",
        )
