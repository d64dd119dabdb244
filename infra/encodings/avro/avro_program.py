"""Compiles a resolved Avro schema to the tables of numbers by which records are read as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infra.compiled import Numbers
from infra.encodings.avro.avro_columns import (
    CODE,
    COUNT,
    FACTOR,
    FIRST,
    GREATEST,
    IS_DECIMAL,
    LEAST,
    REFUSED,
    SIZE,
    SLOT,
    SLOT_COUNT,
    SLOT_FIRST,
    SLOT_WIDTH,
    WIDTH,
)
from infra.encodings.avro.avro_resolution import ARRAY, DEFAULT, ENUM, INT, LONG, MAP, RECORD, STRING, UNION, Step
from infra.encodings.avro.avro_schema import EXACT, Node
from infra.encodings.column_types import FieldType
from infra.instants import FIRST_US, LAST_US

_DAY_US = 86_400_000_000
_INTS, _LONGS = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_BOUNDS = {  # logical type -> what makes microseconds of it, the least and the greatest number
    "date": (1, -719_162, 2_932_896),
    "timestamp-millis": (1_000, FIRST_US // 1_000, LAST_US // 1_000),
    "timestamp-micros": (1, FIRST_US, LAST_US),
    "local-timestamp-millis": (1_000, FIRST_US // 1_000, LAST_US // 1_000),
    "local-timestamp-micros": (1, FIRST_US, LAST_US),
    f"{EXACT}time-millis": (1_000, 0, _DAY_US // 1_000 - 1),
    f"{EXACT}time-micros": (1, 0, _DAY_US - 1),
}


@dataclass
class Slot:
    """Where the values of a column, or of a part of one, are put.

    Attributes:
        symbols: of values that are symbols of an enum, these in their order.
        default: what all values are that are not null; None: what was read.
    """

    number: int
    kind: FieldType
    parts: dict[str, Slot] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    default: Any = None


@dataclass(frozen=True)
class Program:
    """What `read_all` reads records by; the root slot is that of the record."""

    root: Slot
    steps: Numbers
    kids: Numbers
    slots: Numbers
    slot_kids: Numbers


def compiled(step: Step, kind: FieldType) -> Program:
    """The program that reads records of a resolved schema as a struct of this type."""
    compiler = _Compiler()
    root = compiler.slot(kind)
    compiler.step(step, root)
    return Program(
        root,
        np.array(compiler.steps, np.int64).reshape(-1, WIDTH),
        np.array(compiler.kids or [0], np.int64),
        np.array(compiler.slots, np.int64).reshape(-1, SLOT_WIDTH),
        np.array(compiler.slot_kids or [0], np.int64),
    )


class _Compiler:
    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.kids: list[int] = []
        self.slots: list[list[int]] = []
        self.slot_kids: list[int] = []

    def slot(self, kind: FieldType) -> Slot:
        found = Slot(len(self.slots), kind)
        row = [0] * SLOT_WIDTH
        self.slots.append(row)
        row[IS_DECIMAL] = kind.name == "decimal"
        if kind.name == "struct":
            found.parts = {name: self.slot(inner) for name, inner in kind.fields}
        elif kind.element is not None:
            key = {"key": self.slot(FieldType(name="string"))} if kind.name == "map" else {}
            found.parts = {**key, "item": self.slot(kind.element)}
        row[SLOT_FIRST] = len(self.slot_kids)
        self.slot_kids += _null_with(found)
        row[SLOT_COUNT] = len(self.slot_kids) - row[SLOT_FIRST]
        return found

    def step(self, step: Step, slot: Slot | None) -> int:
        number = len(self.steps)
        row = [0] * WIDTH
        self.steps.append(row)
        row[CODE], row[SLOT] = REFUSED if step.is_refused else step.code, -1 if slot is None else slot.number
        row[SIZE], row[FACTOR] = step.writer.size, 1
        if step.code in (INT, LONG) and slot is not None and slot.kind.name == "double":
            row[SIZE] = 1
        row[LEAST], row[GREATEST] = _INTS if step.code == INT else _LONGS
        if step.writer.logical in _BOUNDS:
            row[FACTOR], row[LEAST], row[GREATEST] = _BOUNDS[step.writer.logical]
        elif slot is not None and slot.kind.name == "decimal":
            row[GREATEST], low = divmod(10**step.writer.precision, 2**64)
            row[LEAST] = low - 2**64 if low >= 2**63 else low
        kids = self._kids(step, slot)
        row[FIRST], row[COUNT] = len(self.kids), len(kids)
        self.kids += kids
        return number

    def _kids(self, step: Step, slot: Slot | None) -> list[int]:
        if step.is_refused:
            return []
        if step.code == DEFAULT and slot is not None and step.reader is not None:
            slot.default = default_value(step.reader, step.default)
        if step.code == ENUM:
            return self._symbols(step, slot)
        if step.code == UNION:
            return [self.step(branch, slot) for branch in step.steps]
        if step.code == RECORD:
            own = {} if slot is None else slot.parts
            pairs = [(inner, own.get(name)) for inner, name in zip(step.steps, step.names, strict=True)]
            return [self.step(inner, part) for inner, part in pairs if part is not None or inner.code != DEFAULT]
        if step.code in (ARRAY, MAP):
            own = {} if slot is None else slot.parts
            key = [self.step(Step(code=STRING, writer=Node(kind="string")), own.get("key"))] if step.code == MAP else []
            return [*key, self.step(step.steps[0], own.get("item"))]
        return []

    def _symbols(self, step: Step, slot: Slot | None) -> list[int]:
        """The number of the reader's symbol for each of the writer's; -1 where the reader has none."""
        if slot is None or step.reader is None:
            return [0] * len(step.writer.names)
        slot.symbols = step.reader.names
        numbers = {name: number for number, name in enumerate(step.reader.names)}
        otherwise = numbers.get(step.reader.default_symbol, -1)
        return [numbers.get(name, otherwise) for name in step.writer.names]


def _null_with(slot: Slot) -> list[int]:
    """A slot, and the parts that have a null where it has one: those of structs, not the items of arrays."""
    parts = slot.parts.values() if slot.kind.name == "struct" else ()
    return [slot.number, *(number for part in parts for number in _null_with(part))]


def default_value(node: Node, value: Any) -> Any:
    """The default of a field, written as JSON, as a column of its type takes it."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return None if value is None else default_value(others[0], value)
    if node.kind == "record":
        given = {**node.defaults, **value}
        return {name: default_value(part, given[name]) for name, part in node.fields.items()}
    if node.kind == "array":
        return [default_value(node.parts[0], item) for item in value]
    if node.kind == "map":
        return {name: default_value(node.parts[0], item) for name, item in sorted(value.items())}
    if node.kind in ("bytes", "fixed"):
        found = str(value).encode("latin-1")
        return exact_decimal(node, found) if node.logical == f"{EXACT}decimal" else found
    if node.logical in _BOUNDS:
        return value * _BOUNDS[node.logical][0]
    return float(value) if node.kind in ("float", "double") else value


def exact_decimal(node: Node, data: bytes) -> Any:
    """The decimal that bytes are."""
    from decimal import Decimal

    number = int.from_bytes(data, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -node.scale))
