"""Writes the result of a query to a file that says from which versions of tables it was made."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadArgument
from twofold.tables.refresh.acceptance import accepted_code

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.infra.delta.lake import Lake

PROVENANCE = "twofold"
"""The key under which the schema in a file of Parquet or Arrow has the provenance, as JSON."""


def require_format(file: Path) -> Callable[[pa.RecordBatchReader, Path], int]:
    """Returns what writes files of this suffix.

    Raises:
        BadArgument: it is none of `.parquet`, `.csv`, `.arrow`; or the file is there already.
    """
    if file.suffix not in _WRITERS:
        raise BadArgument(
            f"--to {file}: files of the kind {file.suffix or 'without a suffix'} are not written.",
            hint=f"Name it with {', '.join(_WRITERS)} at its end.",
        )
    if file.exists():
        raise BadArgument(f"--to {file} exists already.", hint="Choose another name, or remove it.")
    return _WRITERS[file.suffix]


def provenance(lake: Lake, query: str, versions: Mapping[str, int]) -> dict[str, Any]:
    """Describes a result: the query, the time in UTC, each table with its version and the fingerprint of its code.

    Args:
        versions: table -> the version that the query reads.
    """
    tables = {}
    for name, version in sorted(versions.items()):
        accepted = accepted_code(lake, name, lake.open(name, version))
        tables[name] = {"version": version, "fingerprint": accepted.code if accepted else None}
    return {"query": query, "written_at": datetime.now(UTC).isoformat(), "tables": tables}


def write_result(rows: pa.RecordBatchReader, file: Path, facts: Mapping[str, Any]) -> int:
    """Writes rows as they come, with their provenance: in the schema of the file; of a CSV file in `FILE.json`.

    Returns:
        The number of rows.
    """
    import pyarrow as pa

    write, draft = require_format(file), file.with_name(f".{file.name}.draft")
    text = json.dumps(facts, indent=1)
    schema = rows.schema.with_metadata({**(rows.schema.metadata or {}), PROVENANCE: text})
    try:
        count = write(pa.RecordBatchReader.from_batches(schema, _with_schema(rows, schema)), draft)
        if file.suffix == ".csv":
            file.with_name(f"{file.name}.json").write_text(f"{text}\n", "utf-8")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _with_schema(rows: pa.RecordBatchReader, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    return (batch.replace_schema_metadata(schema.metadata) for batch in rows)


def _write_parquet(rows: pa.RecordBatchReader, file: Path) -> int:
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(file, rows.schema, compression="zstd") as writer:
        return _write_all(rows, writer)


def _write_arrow(rows: pa.RecordBatchReader, file: Path) -> int:
    import pyarrow as pa

    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        return _write_all(rows, writer)


def csv_value(value: object, clean: Callable[[str], str] = str) -> object:
    """Returns a value as files of comma-separated values have it: times in ISO 8601, nothing for null."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float) else clean(str(value))


def _write_csv(rows: pa.RecordBatchReader, file: Path) -> int:
    count = 0
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(rows.schema.names)
        for batch in rows:
            writer.writerows(map(csv_value, row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
            count += batch.num_rows
    return count


def _write_all(rows: pa.RecordBatchReader, writer: Any) -> int:
    count = 0
    for batch in rows:
        writer.write_batch(batch)
        count += batch.num_rows
    return count


_WRITERS = {".parquet": _write_parquet, ".csv": _write_csv, ".arrow": _write_arrow}
