"""A check of change capture, written once, and the scenarios in which all checks are played together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.captured_bank import Bank, kill
from twofold.features.capture import kafka_connect
from twofold.infra.kafka import broker
from twofold.infra.postgres import postgres_server
from twofold.infra.project.settings import Settings


class Check:
    """Changes rows twice, and validates what the copies then have; those that it begins with are in the schema.

    Attributes:
        changes: SQL of each of the two times.
        refusals: SQL that comes last, whose changes are refused and reported.
    """

    changes: tuple[str, str] = ("", "")
    refusals: str = ""

    def validate(self, bank: Bank, changed: int) -> None:
        """Holds after so many changes."""

    def validate_refusals(self, bank: Bank) -> None:
        """Holds once all checks have made changes that are refused."""


@dataclass
class Scenario:
    """All checks in one bank: what is waited for and taken in is so for all of them at once."""

    bank: Bank
    checks: Sequence[Check]
    broker: Settings
    restart_relay: Callable[[], None]
    changed: int = 0

    def play(self, *actions: Callable[[Scenario], None]) -> None:
        for action in actions:
            action(self)


TABLES = ("people_now", "people_before", "payments_now", "orders_made", "tenants_now")


def change(scenario: Scenario) -> None:
    scenario.bank.run(*(check.changes[scenario.changed] for check in scenario.checks))
    scenario.changed += 1


def take_in(scenario: Scenario) -> None:
    """Waits until all changes are in the log, and brings all tables up to date with it."""
    scenario.bank.wait_captured("people", "payments", "orders", "tenants")
    scenario.bank.take_in(*TABLES)


def validate(scenario: Scenario) -> None:
    for check in scenario.checks:
        check.validate(scenario.bank, scenario.changed)


def refuse(scenario: Scenario) -> None:
    """Makes the changes that are refused, all of people, and takes in what is left."""
    scenario.bank.run(*(check.refusals for check in scenario.checks))
    scenario.bank.wait_captured("people")
    scenario.bank.take_in("people_now")


def validate_refusals(scenario: Scenario) -> None:
    for check in scenario.checks:
        check.validate_refusals(scenario.bank)


def kill_relay(scenario: Scenario) -> None:
    scenario.restart_relay()


def kill_connect(scenario: Scenario) -> None:
    kill(scenario.bank.settings, kafka_connect.NAME)
    scenario.bank.ensure_captured()


def kill_database(scenario: Scenario) -> None:
    kill(scenario.bank.settings, postgres_server.NAME)
    scenario.bank.ensure_captured()


def kill_broker(scenario: Scenario) -> None:
    kill(scenario.broker, broker.NAME)
    broker.wait_ready(scenario.broker)
    scenario.bank.ensure_captured()
