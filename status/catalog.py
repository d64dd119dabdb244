"""The catalog: what is declared of each topic and table, as plain values that no declaration is loaded to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from twofold.status.fold import Facts
from twofold.tables.declare.analysis import whole_scopes
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A topic or a table as it is declared.

    Attributes:
        declaration: what `show` prints of it; parameters that say nothing are left out.
        columns: `name`, `type`, and where they are known `description` and `made of`.
        lineage: column -> the full names, `domain.input.column`, of those that its value is made of.
        untraced: column -> why it may be made of others, too; all columns if the function cannot be read.
        influences: which rows count, and which row they go to -> the full names of the columns that decide it.
        strategy: how a stream maintains the table; empty for a topic.
        inputs, readers: full names of what it reads, and of the tables that read it.
        watermark_ms: how long the stream waits for late records, milliseconds; None: it closes no row.
    """

    name: str
    kind: Literal["topic", "table"]
    description: str
    declaration: Mapping[str, object]
    columns: Sequence[Mapping[str, str]]
    rules: Sequence[str]
    readers: Sequence[str]
    strategy: str = ""
    inputs: Sequence[str] = ()
    owner: str | None = None
    watermark_ms: int | None = None
    outputs: Sequence[str] = ()
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untraced: Mapping[str, str] = field(default_factory=dict)
    influences: Mapping[str, Sequence[str]] = field(default_factory=dict)


def catalog_of(registry: Registry, facts: Facts) -> dict[str, Entry]:
    """Returns the entries of all topics and tables by name, each after what it reads."""
    readers = defaultdict[str, list[str]](list)
    for table in registry.in_order():
        for name in dict.fromkeys(source.full_name for source in registry.upstream(table)):
            readers[name].append(table.full_name)
    declared: list[Topic | Table] = [*registry.topics.values(), *registry.in_order()]
    return {source.full_name: entry_of(source, registry, facts, readers[source.full_name]) for source in declared}


def entry_of(declared: Topic | Table, registry: Registry, facts: Facts, readers: Sequence[str] = ()) -> Entry:
    """Returns the entry of one declaration."""
    common: dict[str, Any] = {
        "name": declared.full_name,
        "description": declared.description,
        "columns": _columns(declared, registry, facts),
        "rules": [str(rule) for rule in declared.checks],
        "readers": readers,
    }
    if isinstance(declared, Topic):
        return Entry(kind="topic", declaration=_topic_facts(declared), **common)
    inputs = [source.full_name for source in registry.upstream(declared)]
    full_names = dict(zip(declared.inputs, registry.input_names(declared), strict=True))

    def resolved(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        pairs = {name: [one.partition(".") for one in of] for name, of in columns.items()}
        return {name: [f"{full_names.get(source, source)}.{column}" for source, _, column in of]
                for name, of in pairs.items()}  # fmt: skip

    return Entry(
        kind="table",
        declaration=_table_facts(declared, registry, facts, inputs),
        strategy=registry.strategy(declared),
        inputs=inputs,
        owner=declared.owner,
        watermark_ms=declared.watermark_ms if declared.closes_at else None,
        lineage=resolved(declared.lineage),
        untraced=_untraced(declared, [column["name"] for column in common["columns"]]),
        influences=resolved(declared.influences),
        outputs=[f"{output.kind} {output.name_for(declared.name)}" for output in declared.outputs],
        **common,
    )


def _topic_facts(topic: Topic) -> dict[str, object]:
    clock = topic.clock
    off = clock and f"{clock.received or '_appended_at'} - {clock.sent}, at most {clock.bound}"
    facts: dict[str, object] = {
        "kind": "topic and its events",
        "record key": topic.message_key,
        "event time": f"{topic.event_time} = {clock.event} + ({off})" if clock else topic.event_time,
        "report time": topic.report_time,
        "append time": "_appended_at",
        "future": f"up to {topic.max_future_skew} beyond the append time" if topic.max_future_skew else "believed",
        "idle": topic.idle_timeout
        and f"after {topic.idle_timeout}; then its time goes on with that of the other topics",
        "a repeated record agrees in": None if topic.compacted else list(topic.same_record),
        "partitions": topic.partitions,
        "archive": "every closed segment is kept for ever" if topic.tiered else "none",
        "compacted": "the newest record of each key; one without a value removes it" if topic.compacted else None,
    }
    return {fact: value for fact, value in facts.items() if value is not None}


def _table_facts(table: Table, registry: Registry, facts: Facts, inputs: Sequence[str]) -> dict[str, object]:
    strategy = registry.strategy(table)
    declaration: dict[str, object] = {
        "kind": f"table, {strategy}: {strategy.meaning}",
        "reads": inputs,
        "key": list(table.primary_key),
        "event time": table.event_time,
        "ends at": table.ends_at,
        "watermark": table.watermark if table.closes_at else None,
        "closes at": table.closes_at,
        "latest by": list(table.sequence_by) or None,
        "recomputed by": list(table.recompute_by),
        "recomputed whole by a change of": _whole_scopes(table, registry, facts) or None,
        "as inputs name it": dict(table.scope_columns) if table.scope_columns else None,
        "depends_within": table.depends_within,
        "owner": table.owner,
        "tags": list(table.tags) or None,
        "fresh within": table.freshness,
        "inferred": list(table.inferred) or None,
        "late records": {"correct": "end in corrections", "drop": "are counted and listed"}[table.late],
    }
    return {fact: value for fact, value in declaration.items() if value is not None}


def _whole_scopes(table: Table, registry: Registry, facts: Facts) -> list[str]:
    """Returns the inputs whose changes recompute the whole table, if the columns of all inputs are known."""

    def columns_of(source: Table) -> list[str]:
        return list(facts.types(source.full_name) or source.statistics)

    return whole_scopes(registry, table, columns_of)


def _untraced(table: Table, columns: Sequence[str]) -> dict[str, str]:
    """Returns the reasons of columns whose sources are not known, those that the plan does not name included."""
    if not table.result_columns:
        return dict.fromkeys(columns, "what its function returns is not known before Spark runs") | {**table.untraced}
    return dict(table.untraced)


def _columns(declared: Topic | Table, registry: Registry, facts: Facts) -> list[dict[str, str]]:
    described = registry.descriptions.get(declared.full_name, {})
    types: Mapping[str, str] = declared.schema if isinstance(declared, Topic) else dict.fromkeys(described, "")
    types = facts.types(declared.full_name) or types
    texts = {name: {"description": text} for name, text in described.items()}
    made_of: Mapping[str, Mapping[str, str]] = (
        {} if isinstance(declared, Topic) else {n: {"made of": ", ".join(of)} for n, of in declared.lineage.items()}
    )
    return [{"name": n, "type": text, **texts.get(n, {}), **made_of.get(n, {})} for n, text in types.items()]
