"""Reads one Avro record strictly, to find the place at which it does not fit its schema."""

from __future__ import annotations

import math
import struct

from twofold.infra.encodings.avro.avro_schema import BOUNDS, Node
from twofold.infra.encodings.record_format import Misfit


def require_sound(root: Node, data: bytes, start: int) -> None:
    """Refuses a record that does not fit its writer's schema in every byte.

    Raises:
        Misfit: names the first place that does not fit the schema.
    """
    reader = _Reader(data, start)
    reader.read(root)
    if reader.at < len(data):
        raise Misfit(f"{len(data) - reader.at} bytes are left behind the record")


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def read(self, node: Node) -> None:
        kind = node.kind
        if kind == "record":
            for name, part in zip(node.names, node.parts, strict=True):
                self._within(f".{name}", part)
        elif kind == "union":
            self.read(node.parts[self._index("the number of a branch", len(node.parts))])
        elif kind in ("array", "map"):
            self._blocks(node)
        elif kind == "boolean":
            if (byte := self._bytes(1, "boolean")[0]) > 1:
                raise Misfit(f"Expected `boolean`, got the byte {byte}")
        elif kind in ("int", "long"):
            self._integer(node)
        elif kind in ("float", "double"):
            size, code = (4, "<f") if kind == "float" else (8, "<d")
            if not math.isfinite(struct.unpack(code, self._bytes(size, kind))[0]):
                raise Misfit(f"Expected `{kind}`, got a number that is not finite")
        elif kind in ("bytes", "string", "fixed"):
            self._text(node)
        elif kind == "enum":
            self._index("the number of a symbol", len(node.names))

    def _within(self, place: str, node: Node) -> None:
        try:
            self.read(node)
        except Misfit as misfit:
            raise Misfit(misfit.reason, place + misfit.path) from None

    def _blocks(self, node: Node) -> None:
        number, keys = 0, set[bytes]()
        while (count := self._long("the length of a block")) != 0:
            if count < 0:
                count = -count
                self._long("the bytes of a block")
            if count > len(self._data) - self.at:
                raise Misfit(f"Expected {count} more items, got {len(self._data) - self.at} more bytes")
            for _ in range(count):
                if node.kind == "map":
                    key = self._text(Node(kind="string"))
                    if key in keys:
                        raise Misfit(f"the key {key.decode()!r} is repeated")
                    keys.add(key)
                self._within(f"[{number}]", node.parts[0])
                number += 1

    def _integer(self, node: Node) -> None:
        number = self._long(node.kind)
        if node.kind == "int" and not -(2**31) <= number < 2**31:
            raise Misfit(f"Expected `int`, got {number}")
        if node.logical in BOUNDS:
            _, least, greatest = BOUNDS[node.logical]
            if not least <= number <= greatest:
                limits = "a time of day" if node.logical.startswith("time-") else "a year from 1 to 9999 in UTC"
                raise Misfit(f"expected {limits}")

    def _text(self, node: Node) -> bytes:
        size = node.size if node.kind == "fixed" else self._long(f"the length of {node.kind}")
        if size < 0:
            raise Misfit(f"Expected `{node.kind}`, got the length {size}")
        content = self._bytes(size, node.kind)
        if node.kind == "string":
            try:
                content.decode()
            except UnicodeDecodeError as error:
                raise Misfit(f"Expected UTF-8, got the byte {content[error.start]:#04x}") from None
        if node.logical == "decimal" and len(str(abs(int.from_bytes(content, "big", signed=True)))) > node.precision:
            raise Misfit(f"Expected decimal({node.precision},{node.scale}), got more digits")
        return content

    def _index(self, what: str, count: int) -> int:
        index = self._long(what)
        if not 0 <= index < count:
            raise Misfit(f"Expected {what} below {count}, got {index}")
        return index

    def _long(self, what: str) -> int:
        number = shift = 0
        while True:
            byte = self._bytes(1, what)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Misfit(f"Expected {what}, got more bytes than a number has")
        if number >= 2**64:
            raise Misfit(f"Expected {what}, got a number of more than 64 bits")
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, size: int, what: str) -> bytes:
        if size > len(self._data) - self.at:
            raise Misfit(f"Expected `{what}`, got the end of the record")
        self.at += size
        return self._data[self.at - size : self.at]
