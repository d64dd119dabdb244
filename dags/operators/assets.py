"""Airflow assets of tables and domains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias

from dags.operators.command_report import TableReport
from tables.declare.table import Table
from tables.declare.topic import Topic


def table_asset(full_name: str) -> Asset:
    """The asset of a table, or of a topic, by name alone.

    An event of a table's asset says what its stream has written, or what batch work has corrected.
    """
    return Asset(name=full_name, uri=f"twofold://{full_name.replace('.', '/')}", group="twofold")


def described_asset(declared: Topic | Table) -> Asset:
    """The asset of a topic or a table, with what its declaration says: description, owner, columns."""
    facts: dict[str, Any] = {"description": declared.description}
    if isinstance(declared, Table):
        facts |= {"owner": declared.owner or declared.domain, "key": list(declared.primary_key)}
        facts |= {"fresh within": declared.freshness} if declared.freshness else {}
        facts |= {"columns": dict(declared.columns)} if declared.columns else {}
    else:
        facts |= {"columns": dict(declared.schema), "event time": declared.event_time}
    asset = table_asset(declared.full_name)
    return Asset(name=asset.name, uri=asset.uri, group=asset.group, extra=plain(facts))


def plain(value: Any) -> Any:
    """A copy of a value of a declaration that Airflow can encode: of a subclass of `str`, as `Field`, the text alone.

    Mappings become dicts, other collections lists.
    """
    if isinstance(value, str):
        return value[:]
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, Collection) else value


def domain_asset(domain: str) -> Asset:
    """The asset of all tables of a domain; an event of it names those that one run changed.

    Tables that one run changed must start one check, not one each: therefore an asset of its own.
    """
    return Asset(name=f"{domain}.tables", uri=f"twofold://{domain}", group="twofold")


def changes_of(domain: str) -> AssetAlias:
    """The alias by which tasks that may have changed tables of a domain publish events of assets."""
    return AssetAlias(f"{domain}.changed", group="twofold")


def change_facts(reports: Iterable[TableReport]) -> dict[str, str | int | None]:
    """The facts that an event of a table's asset carries."""
    several = list(reports)
    return {
        "changed": sum(report.changed for report in several),
        "cause": ", ".join(dict.fromkeys(report.cause for report in several)),
        "version": several[-1].version_after,
        "run": several[-1].run,
    }
