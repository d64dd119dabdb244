"""Audits the copies of outputs: a share of the rows of each is compared with its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twofold.batch.audit.comparison import Comparison
from twofold.batch.audit.hash_buckets import Turn
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.open_target import open_target
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import TwofoldError
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table
from twofold.tables.refresh.open_platform import Platform


def audit_copies(platform: Platform, tables: Sequence[Table], turn: Turn) -> list[Comparison]:
    """Compares the copies of all outputs of tables, but webhooks, which have none; an unreadable one is a fault."""
    return [
        _audit_copy(platform.lake, table, output, turn)
        for table in tables
        for output in table.outputs
        if output.is_read
    ]


def _audit_copy(lake: Lake, table: Table, output: Output, turn: Turn) -> Comparison:
    name = output.name_for(table.name)
    audited = Comparison(subject=table.full_name, other=f"its copy {name}")
    copy = f"{audited.subject}: {audited.other}"
    try:
        compared = compare_copy(lake, table, open_target(lake, table, output), turn.number, turn.of)
    except TwofoldError as error:
        return replace(audited, fault=f"{copy} is not compared: {error.message}")
    if compared is None:
        return audited
    fault = ""
    if compared.differing:
        again = f"`{COMMAND} outputs resend {table.full_name} --output {name} --from now` repairs it"
        fault = f"{copy} differs in {compared.differing:,} of {compared.rows:,} rows; {again}"
    return replace(audited, rows=compared.rows, differing=compared.differing, fault=fault)
