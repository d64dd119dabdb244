"""Lists the ledgers: Delta tables that the platform writes itself, with schemas that describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.infra.delta.lake import Lake


def ledger_schemas() -> dict[str, pa.Schema]:
    """Returns the schema of each ledger, in the order in which the reference describes them."""
    from twofold.batch.audit import topic_certificates
    from twofold.batch.ledgers import run_ledgers
    from twofold.infra.keys import ended_keys
    from twofold.outputs import refused_rows, revealed_places
    from twofold.tables.refresh.events import lost_offsets, transaction_offsets

    return {
        **run_ledgers.SCHEMAS,
        lost_offsets.GAPS: lost_offsets.SCHEMA,
        transaction_offsets.TRANSACTIONS: transaction_offsets.SCHEMA,
        topic_certificates.CERTIFICATES: topic_certificates.SCHEMA,
        refused_rows.REFUSED: refused_rows.SCHEMA,
        revealed_places.REVEALED: revealed_places.SCHEMA,
        ended_keys.FORGOTTEN: ended_keys.SCHEMA,
    }


def describe_ledgers(lake: Lake) -> None:
    """Gives the ledgers that an older platform has made the comments that new ones have from the start."""
    from twofold.infra.delta.lake import descriptions_of

    for name, schema in ledger_schemas().items():
        if lake.exists(name):
            lake.describe(name, *descriptions_of(schema))
