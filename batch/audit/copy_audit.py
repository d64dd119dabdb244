"""Audits the copies of outputs: a share of the rows of each is compared with its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twofold.batch.audit.hash_buckets import Turn
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import TwofoldError
from twofold.outputs.copy_comparison import compare_copy
from twofold.outputs.targets.open_target import open_target
from twofold.tables.declare.outputs.output import Output
from twofold.tables.declare.table import Table


@dataclass(frozen=True, kw_only=True)
class AuditedCopy:
    """The audit of the copy of an output.

    Attributes:
        rows: that were compared; None: none was, as the copy is on its way to a version of the table.
        differing: those that are missing, extra or changed.
        fault: for people; empty: none.
    """

    table: str
    output: str
    rows: int | None = None
    differing: int = 0
    fault: str = ""


def audit_copies(lake: Lake, tables: Sequence[Table], turn: Turn) -> list[AuditedCopy]:
    """Compares the copies of all outputs of tables, but webhooks, which have none; an unreadable one is a fault."""
    return [_audit_copy(lake, table, output, turn) for table in tables for output in table.outputs if output.is_read]


def _audit_copy(lake: Lake, table: Table, output: Output, turn: Turn) -> AuditedCopy:
    audited = AuditedCopy(table=table.full_name, output=output.name_for(table.name))
    name = f"{audited.table}: its copy {audited.output}"
    try:
        compared = compare_copy(lake, table, open_target(lake, table, output), turn.number, turn.of)
    except TwofoldError as error:
        return replace(audited, fault=f"{name} is not compared: {error.message}")
    if compared is None:
        return audited
    fault = ""
    if compared.differing:
        again = f"`{COMMAND} outputs resend {audited.table} --output {audited.output} --from now` repairs it"
        fault = f"{name} differs in {compared.differing:,} of {compared.rows:,} rows; {again}"
    return replace(audited, rows=compared.rows, differing=compared.differing, fault=fault)
