"""Airflow assets of tables and domains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias

from twofold.dags.operators.command_report import TableReport
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic


def table_asset(full_name: str) -> Asset:
    """Returns the asset of a table or a topic, without details.

    An event of a table's asset announces rows that its stream has written or batch work has corrected.
    """
    return Asset(name=full_name, uri=f"twofold://{full_name.replace('.', '/')}", group="twofold")


def described_asset(declared: Topic | Table) -> Asset:
    """Returns the asset of a topic or a table with details of its declaration: description, owner, columns."""
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
    """Copies a value of a declaration in a form that Airflow can encode: text for subclasses of `str`, such as `Field`.

    Mappings become dicts, other collections lists.
    """
    if isinstance(value, str):
        return value[:]
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, Collection) else value


def domain_asset(domain: str) -> Asset:
    """Returns the asset of all tables of a domain; its events name the tables that one run changed.

    A separate asset is needed since tables changed by one run should start one check together.
    """
    return Asset(name=f"{domain}.tables", uri=f"twofold://{domain}", group="twofold")


def changes_of(domain: str) -> AssetAlias:
    """Returns the asset alias through which tasks publish events of a domain's changed tables."""
    return AssetAlias(f"{domain}.changed", group="twofold")


def change_facts(reports: Iterable[TableReport]) -> dict[str, str | int | None]:
    """Returns the details in an event of a table's asset."""
    several = list(reports)
    return {
        "changed": sum(report.changed for report in several),
        "cause": ", ".join(dict.fromkeys(report.cause for report in several)),
        "version": several[-1].version_after,
        "run": several[-1].run,
    }
