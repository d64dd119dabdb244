"""Protobuf records as columns: one compiled loop over plain buffers, no object per record.

Records are read twice, as those of Avro are: first to hold every byte against the schema and to count values, then to
put the values of those that hold. Each value has its place by the message that it is in, so a field that is repeated
though it should not be is its last one, and the parts of a message that comes in pieces are joined, as the format says.
"""

from __future__ import annotations

import numpy as np

from infra.compiled import Bytes, Numbers, compiled
from infra.encodings.byte_loops import is_utf8
from infra.encodings.protobuf.protobuf_faults import EIGHT, SIZED, VARINT

# Columns of a program, one row for each field: its number; its type on the wire; whether it may be packed; whether it
# is a text; what its bits are; the slot of its values; the group and the slot of its items; the message that it holds;
# the slots that are empty once it is read, among `rivals`.
NUMBER, WIRE, MAY_PACK, IS_TEXT, CODE, SLOT, GROUP, ITEM, NODE, FIRST, LAST = range(11)
WIDTH = LAST + 1
NOTHING = -1
WHOLE, SIGNED_32, UNSIGNED_32, ZIGZAG_32, ZIGZAG_64, TRUTH = range(6)
"""What the bits of a number are."""
_FAULT = -1
_VARINT, _EIGHT, _SIZED = VARINT, EIGHT, SIZED
# Columns of the stack: where the message ends, which it is, its number in its group.
_END, _NODE, _NTH = range(3)
_STACK_WIDTH = _NTH + 1


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends; -1 for that when it is cut off or has more than ten bytes."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return int(np.int64(value)), at
        shift += np.uint64(7)
    return 0, _FAULT


@compiled
def _number(wire: int, data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The bits of a number and where it ends; -1 for that when it is cut off."""
    if wire == _VARINT:
        return _varint(data, at, end)
    size = 8 if wire == _EIGHT else 4
    if size > end - at:
        return 0, _FAULT
    bits = np.uint64(0)
    for n in range(size):
        bits |= np.uint64(data[at + n]) << np.uint64(8 * n)
    return int(np.int64(bits)), at + size


@compiled
def _of_bits(code: int, bits: int) -> int:
    """The number that bits are; of a floating-point one they stay as they are."""
    if code == TRUTH:
        return 1 if bits != 0 else 0
    if code == WHOLE:
        return bits
    if code == ZIGZAG_64:
        half = np.int64(np.uint64(bits) >> np.uint64(1))
        return int(half ^ -np.int64(np.uint64(bits) & np.uint64(1)))
    low = np.int64(np.uint64(bits) & np.uint64(0xFFFFFFFF))
    if code == ZIGZAG_32:
        return int((low >> np.int64(1)) ^ -(low & np.int64(1)))
    if code == SIGNED_32 and low >= np.int64(1 << 31):
        return int(low - np.int64(1 << 32))
    return int(low)


@compiled
def _find(number: int, first: int, end: int, steps: Numbers) -> int:
    """The row of a field among those of its message; -1 where there is none."""
    last = end
    while first < last:
        middle = (first + last) // 2
        if steps[middle, NUMBER] < number:
            first = middle + 1
        else:
            last = middle
    return first if first < end and steps[first, NUMBER] == number else _FAULT


@compiled
def _place(
    step: int, nth: int, one: int, other: int, steps: Numbers, bases: Numbers, counts: Numbers, put: bool,
    ones: Numbers, others: Numbers, there: Bytes,
) -> None:  # fmt: skip
    """Count a value, and put it where it belongs: among those of its message, or behind the items there are."""
    slot, group = steps[step, SLOT], steps[step, GROUP]
    if slot < 0:
        return
    if group < 0:
        if put:
            place = bases[slot] + nth
            ones[place], others[place], there[place] = one, other, 1
        return
    if put:
        ones[bases[slot] + nth] += 1
        place = bases[steps[step, ITEM]] + counts[group]
        ones[place], others[place], there[place] = one, other, 1
    counts[group] += 1


@compiled
def _read(
    at: int, end: int, data: Bytes, steps: Numbers, bounds: Numbers, rivals: Numbers, bases: Numbers, stack: Numbers,
    counts: Numbers, put: bool, ones: Numbers, others: Numbers, there: Bytes,
) -> int:  # fmt: skip
    """Read a record: 1 when it is what the schema says, 2 when it has two members of a oneof that are not both plain.

    The messages that are being read are on a stack, as in `avro_columns`.
    """
    depth, result = 0, 1
    stack[0, _END], stack[0, _NODE], stack[0, _NTH] = end, 0, counts[0]
    counts[0] += 1
    while True:
        while at == stack[depth, _END]:
            if depth == 0:
                return result
            depth -= 1
        end, node, nth = stack[depth, _END], stack[depth, _NODE], stack[depth, _NTH]
        tag, at = _varint(data, at, end)
        if at < 0 or tag < 0:
            return 0
        step = _find(tag >> 3, bounds[node], bounds[node + 1], steps)
        if step < 0:
            return 0
        wire, expected = tag & 7, steps[step, WIRE]
        if wire != expected and not (wire == _SIZED and steps[step, MAY_PACK]):
            return 0
        if put:
            for n in range(steps[step, FIRST], steps[step, LAST]):
                place = bases[rivals[n, 0]] + nth
                if there[place]:
                    there[place] = 0
                    if rivals[n, 1]:
                        result = 2
        if wire != _SIZED:
            bits, at = _number(wire, data, at, end)
            if at < 0:
                return 0
            _place(step, nth, _of_bits(steps[step, CODE], bits), 0, steps, bases, counts, put, ones, others, there)
            continue
        size, at = _varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return 0
        last = at + size
        if expected != _SIZED:
            while at < last:
                bits, at = _number(expected, data, at, last)
                if at < 0:
                    return 0
                _place(step, nth, _of_bits(steps[step, CODE], bits), 0, steps, bases, counts, put, ones, others, there)
            continue
        slot, group = steps[step, SLOT], steps[step, GROUP]
        if steps[step, NODE] < 0:
            if steps[step, IS_TEXT] and not put and not is_utf8(data, at, last):
                return 0
            _place(step, nth, at, size, steps, bases, counts, put, ones, others, there)
            at = last
            continue
        inner = nth
        if slot >= 0:
            if group >= 0:
                inner = counts[group]
                counts[group] += 1
            if put:
                place = bases[slot] + nth
                ones[place] += 1
                there[place] = 1
        depth += 1
        stack[depth, _END], stack[depth, _NODE], stack[depth, _NTH] = last, steps[step, NODE], inner


@compiled
def read_all(
    data: Bytes, starts: Numbers, ends: Numbers, sound: Bytes, steps: Numbers, bounds: Numbers, rivals: Numbers,
    bases: Numbers, counts: Numbers, put: bool, ones: Numbers, others: Numbers, there: Bytes,
) -> int:  # fmt: skip
    """Read records; with `put` the values of those that are sound, else which are, and the size of each group."""
    before, stack = counts.copy(), np.zeros((len(bounds) + 1, _STACK_WIDTH), np.int64)
    for row in range(len(starts)):
        if put and not sound[row]:
            continue
        sound[row] = _read(
            starts[row], ends[row], data, steps, bounds, rivals, bases, stack, counts, put, ones, others, there
        )
        if sound[row]:
            before[:] = counts
        else:
            counts[:] = before
    return 0
