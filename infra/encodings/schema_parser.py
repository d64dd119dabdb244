"""The base class of parsers for encodings whose records name the schema that they were written by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.parsed_records import Parsed, sized, without_gc
from twofold.infra.encodings.record_format import BadSchema, Misfit, RecordFormat
from twofold.infra.encodings.schema_files import Schema, SchemaFiles
from twofold.infra.encodings.schema_framing import HEADER, Framed, framed
from twofold.infra.encodings.schema_lookup import find_schema
from twofold_archive.format.record_columns import HEADERS

Reading = TypeVar("Reading")


@dataclass(frozen=True)
class SchemaGroup:
    """Records of a batch that were written by one schema.

    Attributes:
        written: the framing that names the schema.
        rows: their numbers, ascending.
        records: the bytes of each, without its framing.
    """

    written: Framed
    rows: Sequence[int]
    records: Sequence[bytes]


class SchemaParser(ABC, Generic[Reading]):
    """Parses records group by group, those of one schema at a time.

    `Reading` is the plan by which records of one schema are read, made once per schema.
    """

    expected: ClassVar[str]
    """The description of a value, for people."""
    indexed: ClassVar[bool] = False
    """As of `framed`."""

    def __init__(self, format: RecordFormat) -> None:
        self.format = format
        self._known: dict[tuple[int | str, tuple[int, ...]], Reading | str] = {}

    @abstractmethod
    def reading(self, schema: Schema, written: Framed) -> Reading:
        """Plans how records of this schema are read.

        Raises:
            BadSchema, Misfit: no record of it can be read; names the reason.
        """

    @abstractmethod
    def require_sound(self, record: bytes, reading: Reading) -> None:
        """Refuses a record that does not fit its writer's schema in every byte.

        Raises:
            Misfit: names the first place that does not fit the schema.
        """

    @abstractmethod
    def read(self, record: bytes, reading: Reading) -> Any:
        """Reads a record with the encoding's library.

        Raises:
            Misfit: it does not fit its schema.
        """

    @abstractmethod
    def columns(self, values: list[Any], reading: Reading) -> tuple[Sequence[pa.Array], Mapping[int, str]]:
        """Builds the columns of values from `read`; also returns the faults of values that do not fit, by number."""

    @abstractmethod
    def rests(self, values: list[Any], reading: Reading) -> list[str | None]:
        """Returns for each value the unnamed fields that the topic keeps, as JSON; None if it has none."""

    def parse(self, raw: pa.Table) -> Parsed:
        """Parses records; returns those that fit their schema, and the faults of the others.

        Raises:
            RegistryUnreachable: a record's schema is no file, and the registry does not answer. Retryable.
        """
        groups, faults = self._by_schema(raw)
        parts = []
        with without_gc():
            for group in groups:
                reading = self._reading(group.written)
                if isinstance(reading, str):
                    faults.update((row, [reading]) for row in group.rows)
                else:
                    parts.append(self._parse_group(group, reading))
        return _joined(parts, faults, self.format)

    def _parse_group(self, group: SchemaGroup, reading: Reading) -> Parsed:
        values, places, faults = list[Any](), list[int](), dict[int, list[str]]()
        for place, record in enumerate(group.records):
            try:
                values.append(self.read(record, reading))
                places.append(place)
            except Misfit as misfit:
                faults[group.rows[place]] = [_text(misfit)]
        columns, misfits = self.columns(values, reading)
        if misfits:
            for number, reason in misfits.items():
                faults[group.rows[places[number]]] = [self._reason(group.records[places[number]], reading) or reason]
            fitting = [number for number in range(len(values)) if number not in misfits]
            columns = [column.take(pa.array(fitting, pa.int64())) for column in columns]
            values, places = [values[number] for number in fitting], [places[number] for number in fitting]
        rows = [group.rows[place] for place in places]
        return Parsed(rows, dict(zip(self.format.types, columns, strict=True)), faults, self.rests(values, reading))

    def _reason(self, record: bytes, reading: Reading) -> str:
        """Describes the place at which a record does not fit its schema; empty if it fits."""
        try:
            self.require_sound(record, reading)
        except Misfit as misfit:
            return _text(misfit)
        return ""

    def refuse_unknown(self, field: str | None, written: Framed) -> None:
        """Refuses a schema with a field that the topic neither names nor allows.

        Raises:
            Misfit: it has one.
        """
        if field is not None and self.format.unknown_fields == "refuse":
            raise Misfit(f"Object contains unknown field `{field}`, by the schema {written.schema}")

    @property
    def files(self) -> SchemaFiles:
        """The schemas of the topic that are files."""
        assert self.format.schema_files is not None
        return self.format.schema_files

    @cached_property
    def record_type(self) -> FieldType:
        """The record as one struct."""
        return self.format.record_type

    def _reading(self, written: Framed) -> Reading | str:
        """Returns the plan for records of this framing, or the reason why none of them can be read."""
        key = written.schema, written.message
        if key not in self._known:
            try:
                schema = find_schema(self.files, written.schema)
            except LookupError as error:
                return str(error.args[0])  # may be known later
            try:
                self._known[key] = self.reading(schema, written)
            except BadSchema as error:
                self._known[key] = f"the schema {written.schema} cannot be read: {error}"
            except Misfit as misfit:
                self._known[key] = misfit.reason
        return self._known[key]

    def _by_schema(self, raw: pa.Table) -> tuple[list[SchemaGroup], dict[int, list[str]]]:
        """Groups the records of a batch by schema; also returns the faults of records that name none."""
        values = raw["value"].combine_chunks()
        # Only in a header of its own is there a schema; others, such as those of tracing, need no look at each record.
        names = pc.struct_field(pc.list_flatten(raw[HEADERS]), "key")
        has_headers = bool(pc.any(pc.equal(names, HEADER)).as_py())
        headers: list[Any] = raw[HEADERS].to_pylist() if has_headers else [None] * len(raw)
        by_schema: dict[tuple[int | str, tuple[int, ...]], list[tuple[int, bytes]]] = {}
        faults: dict[int, list[str]] = {}
        for row, value in enumerate(values.to_pylist()):
            unfit = sized(value, self.format.max_bytes, self.expected)
            if unfit is None:
                try:
                    frame = framed(value, headers[row], indexed=self.indexed)
                except ValueError as error:
                    unfit = str(error)
                else:
                    by_schema.setdefault((frame.schema, frame.message), []).append((row, value[frame.start :]))
            if unfit is not None:
                faults[row] = [unfit]
        groups = [
            SchemaGroup(Framed(schema, 0, message), *zip(*records, strict=True))
            for (schema, message), records in by_schema.items()
        ]
        return groups, faults


def _text(misfit: Misfit) -> str:
    return str(misfit) if misfit.path else misfit.reason


def _joined(parts: Sequence[Parsed], faults: dict[int, list[str]], format: RecordFormat) -> Parsed:
    """Merges the parsed groups of a batch, in the order of the batch."""
    for part in parts:
        faults.update(part.faults)
    some = [part for part in parts if part.rows]
    if len(some) == 1:
        return Parsed(some[0].rows, some[0].columns, faults, some[0].rests)
    rows = np.concatenate([np.asarray(part.rows, np.int64) for part in some]) if some else np.zeros(0, np.int64)
    order = np.argsort(rows)
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in some] or [pa.array([], kind.arrow)]).take(
            pa.array(order)
        )
        for name, kind in format.types.items()
    }
    rests = [rest for part in some for rest in part.rests]
    return Parsed(rows[order].tolist(), columns, faults, [rests[n] for n in order])
