"""State of captured tables; if none is declared, no code of theirs is loaded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError
from twofold.infra.project.chosen_domains import relay_name
from twofold_algebra.sql.names import POSTGRES

if TYPE_CHECKING:
    from twofold.infra.capture.captured_table import CaptureState
    from twofold.infra.process.doctor import Finding
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import Registry

LATE_S = 60
"""A record that waits in an intake for longer is a problem."""


def capture_states(settings: Settings, registry: Registry) -> list[CaptureState]:
    """Returns the states of captured tables; if none is declared, no code of theirs is loaded.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    from twofold.tables.declare.sources.captured_topic import captures

    declared = captures(registry)
    if not declared:
        return []
    from twofold.batch.capture.lost_changes import changes_fault
    from twofold.infra.capture.captured_table import again
    from twofold.infra.capture.debezium_connector import state
    from twofold.infra.delta.lake import Lake

    states, lake = [], Lake(settings)
    for capture in declared:
        now = state(settings, capture)
        lost = "" if now.fault or capture.is_outbox else changes_fault(lake, capture.topic)
        states.append(replace(now, fault=lost, hint=f"{again(capture.topic)}.") if lost else now)
    return with_intakes(settings, registry, states, [one.topic for one in declared if one.is_personal])


def with_intakes(
    settings: Settings, registry: Registry, states: list[CaptureState], topics: Sequence[str]
) -> list[CaptureState]:
    """Adds how many records wait in intakes, and whether one does for long, which the relay of the domain should take.

    Raises:
        BrokerUnreachable: retryable.
    """
    if not topics:
        return states
    from twofold.infra.capture.captured_table import INTAKE
    from twofold.infra.kafka.topic_admin import appended_ms, offsets

    bounds = {name: places[0] for name, places in offsets(settings, [name + INTAKE for name in topics]).items()}
    waiting = {name: place.latest - place.earliest for name, place in bounds.items()}
    oldest = appended_ms(settings, {name: {0: bounds[name].earliest} for name, count in waiting.items() if count})
    found = []
    for state in states:
        name = state.topic + INTAKE
        if state.topic in topics:
            state = replace(state, waiting=waiting.get(name, 0))
        waits_s = time.time() - oldest[name][0] / 1_000 if name in oldest else 0
        if waits_s > LATE_S and not state.fault:
            relay = relay_name(registry.topics[state.topic].domain)
            fault = f"{state.waiting:,} records wait to be encrypted, the oldest for {waits_s:.0f} s"
            hint = f"{relay} should do so; {settings.logs / f'{relay}.log'} may say why it does not."
            state = replace(state, fault=fault, hint=hint)
        found.append(state)
    return found


def capture_findings(settings: Settings, registry: Registry) -> list[Finding]:
    """Returns the doctor's findings about captured tables; none while the platform is down."""
    from twofold.infra.process import supervisor
    from twofold.infra.process.doctor import Finding

    if not supervisor.is_running(settings):
        return []
    try:
        states, slots = capture_states(settings, registry), _undeclared_slots(settings, registry)
    except TwofoldError as error:
        hint = error.hint or f"{COMMAND} up starts what does not run."
        return [Finding(name="Captures", ok=False, found=error.message, expected="servers that answer", hint=hint)]
    return [
        Finding(
            name=f"Capture {state.topic}",
            ok=not state.fault,
            found=state.fault or f"runs, slot {state.slot}",
            expected="runs, no change lost",
            hint=state.hint,
        )
        for state in states
    ] + [
        Finding(
            name=f"Slot {slot}",
            ok=False,
            found="no topic is declared for it, and the database keeps its log for it",
            expected="a topic",
            hint=f"SELECT pg_drop_replication_slot({POSTGRES.literal(slot)}) gives it up; "
            "its topic cannot continue then.",
        )
        for slot in slots
    ]


def _undeclared_slots(settings: Settings, registry: Registry) -> list[str]:
    """Returns the slots that no topic of any domain declares; none if no domain that runs captures a table."""
    from twofold.tables.declare.registry import load
    from twofold.tables.declare.sources.captured_topic import captures

    if not captures(registry):
        return []
    from twofold.infra.capture.debezium_connector import undeclared_slots

    return undeclared_slots(settings, captures(load()))
