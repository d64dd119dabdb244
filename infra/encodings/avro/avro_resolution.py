"""Resolves the Avro schema of a writer to that of a reader: a plan by which records are read as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from twofold.infra.encodings.avro.avro_schema import Node, parse_avro
from twofold.infra.encodings.record_format import BadSchema
from twofold.infra.encodings.schema_files import Schema

_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """The plan by which values of one writer's type are read as one reader's type.

    Attributes:
        kind: the kind of the writer's type; `default`: the value was not written.
        writer: the writer's type.
        reader: the reader's type; None: the value is skipped.
        steps: of a record, in the order in which its fields were written, then those that only the reader has; of a
            union its branches; of an array or a map its item.
        names: of a record, the reader's name for the field of each step; empty: the field is skipped.
        default: of a field that was not written, its value.
        is_refused: the reader has no such value: a record that has one cannot be read.
    """

    kind: str
    writer: Node
    reader: Node | None = None
    steps: tuple[Step, ...] = ()
    names: tuple[str, ...] = ()
    default: Any = None
    is_refused: bool = False


def resolved(writer: Node, reader: Node | None, path: str = "") -> Step:
    """Plans how values of the writer's schema are read as values of the reader's schema, by Avro's rules.

    Raises:
        BadSchema: no record, or none with a value of some field, could be read; names the place of the difference.
    """
    if reader is not None and writer.kind != "union" and reader.kind == "union":
        return resolved(writer, _branch(writer, reader, path), path)
    if writer.kind == "union":
        return _of_union(writer, reader, path)
    if reader is None:
        parts = tuple(resolved(part, None) for part in writer.parts)
        return Step(
            kind=writer.kind, writer=writer, steps=parts, names=("",) * len(parts) if writer.kind == "record" else ()
        )
    if writer.kind != reader.kind and (writer.kind, reader.kind) not in _PROMOTED:
        raise _differ(path, writer, reader)
    if writer.kind == "record":
        return _of_record(writer, reader, path)
    if writer.kind == "enum":
        return Step(kind=writer.kind, writer=writer, reader=reader)
    same = (writer.logical, writer.size, writer.scale) == (reader.logical, reader.size, reader.scale)
    if not same or writer.precision > reader.precision:
        raise _differ(path, writer, reader)
    steps = tuple(resolved(w, r, f"{path}[]") for w, r in zip(writer.parts, reader.parts, strict=True))
    return Step(kind=writer.kind, writer=writer, reader=reader, steps=steps)


def _of_record(writer: Node, reader: Node, path: str) -> Step:
    unwritten, steps, names = dict(reader.fields), [], []
    by_name = {alias: name for name in reader.fields for alias in (*reader.aliases.get(name, ()), name)}
    for name, part in writer.fields.items():
        own = by_name.get(name, "")
        steps.append(resolved(part, unwritten.pop(own, None), f"{path}.{name}"))
        names.append(own)
    for name, part in unwritten.items():
        if name not in reader.defaults:
            raise BadSchema(f"the field `{path}.{name}` was not written and has no default".replace("`.", "`"))
        steps.append(Step(kind="default", writer=part, reader=part, default=reader.defaults[name]))
        names.append(name)
    return Step(kind="record", writer=writer, reader=reader, steps=tuple(steps), names=tuple(names))


def _of_union(writer: Node, reader: Node | None, path: str) -> Step:
    """Plans a writer's union; a branch that the reader lacks is refused per record, unless none is left."""
    steps, readable = [], 0
    for branch in writer.parts:
        try:
            steps.append(resolved(branch, reader, path))
            readable += 1
        except BadSchema:
            steps.append(replace(resolved(branch, None), is_refused=True))
    if not readable:
        raise _differ(path, writer, reader or writer)
    return Step(kind="union", writer=writer, reader=reader, steps=tuple(steps))


def _branch(writer: Node, reader: Node, path: str) -> Node:
    """Returns the branch of a reader's union for a value: one of the same type, else one by promotion."""
    for same_kind in (True, False):
        for branch in reader.parts:
            if (branch.kind == writer.kind) is same_kind:
                try:
                    resolved(writer, branch, path)
                except BadSchema:
                    continue
                return branch
    raise _differ(path, writer, reader)


def _differ(path: str, writer: Node, reader: Node) -> BadSchema:
    return BadSchema(f"`{path.removeprefix('.')}` was written as {shown(writer)} and is read as {shown(reader)}")


def unreadable_fields(writer: Schema, reader: Schema) -> Iterator[str]:
    """Lists the parts of one schema that another one cannot read.

    Raises:
        BadSchema: one of them cannot be read.
    """
    return unreadable(resolved(parse_avro(writer).root, parse_avro(reader).root))


def unreadable(step: Step, path: str = "") -> Iterator[str]:
    """Yields the parts of a writer's schema without a value in the reader's: branches of unions, symbols of enums."""
    if step.is_refused:
        yield f"`{path.removeprefix('.')}` was written as {shown(step.writer)}, which is not read"
        return
    if step.kind == "enum" and step.reader is not None and not step.reader.default_symbol:
        missing = [name for name in step.writer.names if name not in step.reader.names]
        if missing:
            yield f"`{path.removeprefix('.')}` was written with the symbol {missing[0]}, which is not read"
    names = list(step.writer.fields) if step.kind == "record" else []
    for number, inner in enumerate(step.steps):
        if inner.kind != "default":
            place = f".{names[number]}" if names else "" if step.kind == "union" else "[]"
            yield from unreadable(inner, path + place)


def shown(node: Node) -> str:
    """Formats a type for people."""
    if node.kind == "union":
        return " or ".join(shown(part) for part in node.parts)
    if node.logical == "decimal":
        return f"decimal({node.precision},{node.scale})"
    return node.logical or (f"fixed({node.size})" if node.kind == "fixed" else node.kind)
