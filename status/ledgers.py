"""Lists the ledgers: Delta tables that the platform writes itself, with schemas that describe them."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from twofold.infra.project.feature import features

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.infra.delta.lake import Lake


def ledger_schemas() -> dict[str, pa.Schema]:
    """Returns the schema of each ledger, in the order in which the reference describes them."""
    from twofold.batch.audit import topic_certificates
    from twofold.batch.ledgers import run_ledgers
    from twofold.tables.refresh.events import lost_offsets, transaction_offsets

    return {
        **run_ledgers.SCHEMAS,
        lost_offsets.GAPS: lost_offsets.SCHEMA,
        transaction_offsets.TRANSACTIONS: transaction_offsets.SCHEMA,
        topic_certificates.CERTIFICATES: topic_certificates.SCHEMA,
        **{name: resolve_name(schema) for feature in features() for name, schema in feature.ledgers.items()},
    }


def describe_ledgers(lake: Lake) -> None:
    """Gives the ledgers that an older platform has made the comments that new ones have from the start."""
    from twofold.infra.delta.lake import descriptions_of

    for name, schema in ledger_schemas().items():
        if lake.exists(name):
            lake.describe(name, *descriptions_of(schema))
