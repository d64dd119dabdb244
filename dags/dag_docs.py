"""Writes the documentation of DAGs and tasks for the Airflow UI, from the declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from twofold.infra import COMMAND
from twofold.infra.project.chosen_domains import driver_name
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

LATE = {"correct": "end in corrections", "drop": "are counted and listed, not corrected"}

KINDS = (
    "stream",
    "reconcile",
    "repair",
    "rebuild",
    "recover",
    "audit",
    "quality",
    "backfill",
    "replay",
    "redrive",
    "audit_topic",
    "forget",
    "maintain",
)
"""The kinds of DAGs, in the order in which the reference describes them."""


def template(kind: str) -> Template:
    """Reads what every DAG of this kind says."""
    return Template((Path(__file__).parent / "pages" / f"{kind}.md").read_text("utf-8"))


def dag_page(kind: str, domain: str, tables: Sequence[Table], topics: Sequence[Topic], registry: Registry) -> str:
    """Writes the page of a DAG: its purpose, its tables, and the steps after a failure."""
    return template(kind).substitute(
        command=COMMAND,
        domain=domain,
        driver=driver_name(domain),
        tables="## Tables\n\n" + _tables(tables, registry),
        topics="## Topics\n\n" + _topics(topics),
        rules="## Rules\n\n" + "\n".join(f"{rules(table)}\n" for table in tables),
    )


def table_task(table: Table, descriptions: Mapping[str, str]) -> str:
    """Writes the page of one table's task in reconcile."""
    late = LATE[table.late]
    facts = [f"Key: {_names(table.primary_key)}. Late records {late}."]
    facts += [f"Owner: {table.owner}."] if table.owner else []
    facts += [f"Fresh within {table.freshness}."] if table.freshness else []
    columns = "\n".join(f"- `{column}`: {text}" for column, text in descriptions.items())
    return "\n\n".join(
        [f"**{table.full_name}**: {table.description}", " ".join(facts), *([columns] if columns else [])]
    )


def rules(table: Table) -> str:
    """Writes the page of one table's task in quality."""
    listed = "\n".join(f"- `{rule}`" for rule in table.checks) or "No rules are declared."
    return f"**{table.full_name}**\n\n{listed}"


def _tables(tables: Sequence[Table], registry: Registry) -> str:
    lines = []
    for table in tables:
        reads = _names([declaration.full_name for declaration in registry.upstream(table)])
        keeps = registry.strategy(table).meaning
        lines.append(
            f"- **{table.full_name}**: {table.description} Reads {reads}; key {_names(table.primary_key)}; {keeps}."
        )
    return "\n".join(lines)


def _topics(topics: Sequence[Topic]) -> str:
    lines = []
    for topic in topics:
        partitions = f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
        lines.append(f"- **{topic.full_name}**: {topic.description} {partitions}; event time `{topic.event_time}`.")
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
