"""Avro records as columns: one compiled loop over plain buffers, no object per record.

Records are read twice: first to hold every byte against the schema and to count values, then to write the values of
those that hold. What is not the case of a value is decided by bits alone, so nothing is rounded, cut or wrapped.
"""

from __future__ import annotations

import numpy as np

from infra.compiled import Bytes, Numbers, compiled
from infra.encodings.avro.avro_resolution import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DEFAULT,
    ENUM,
    FIXED,
    FLOAT,
    INT,
    LONG,
    MAP,
    NULL,
    RECORD,
    STRING,
    UNION,
)
from infra.encodings.byte_loops import is_utf8

# Columns of a program, one row for each step: what its bytes are, the slot of its values or -1, its steps among `kids`;
# bytes of a fixed, or 1 of a whole number that is kept as a double; what a number is multiplied by; the least and the
# greatest number, or the bounds of a decimal.
CODE, SLOT, FIRST, COUNT, SIZE, FACTOR, LEAST, GREATEST = range(8)
WIDTH = GREATEST + 1
# Columns of the table of slots, one row each: whether it is a decimal; among `slot_kids` those that are null where it
# is, itself the first; where it begins.
IS_DECIMAL, SLOT_FIRST, SLOT_COUNT, BASE = range(4)
SLOT_WIDTH = BASE + 1
FROM_DOUBLE, FROM_FLOAT, FROM_NUMBER = range(3)
"""What the bits of a number that is not whole are of."""
REFUSED = UNION + 100
"""The code of a step that no record may take."""
_FAULT = -1
# Columns of the stack: the step, how many of its steps are done, items that are left of a block, all items, its place.
_STEP, _KID, _LEFT, _TOTAL, _PLACE = range(5)
_STACK_WIDTH = _PLACE + 1


@compiled
def _long(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag number and where it ends; -1 for that when it is cut off or has more than 64 bits."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end:
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return 0, _FAULT
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            half = np.int64(value >> np.uint64(1))
            return int(half ^ -np.int64(value & np.uint64(1))), at
        shift += np.uint64(7)
    return 0, _FAULT


@compiled
def _decimal(data: Bytes, at: int, size: int) -> tuple[int, int, bool]:
    """The low and the high half of a big-endian number, and whether it has no more than 128 bits."""
    low = high = np.uint64(0)
    if size and data[at] >= 0x80:
        low = high = ~np.uint64(0)
    sign = np.uint8(high & np.uint64(0xFF))
    fits = True
    for n in range(size):
        if n < size - 16:
            fits = fits and data[at + n] == sign
            continue
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[at + n])
    if size > 16 and (high >> np.uint64(63) == np.uint64(1)) != (sign == 0xFF):
        fits = False
    return int(np.int64(low)), int(np.int64(high)), fits


@compiled
def _has_digits(low: int, high: int, bound_low: int, bound_high: int) -> bool:
    """Whether a number of 128 bits is nearer to 0 than the bound."""
    one, other = np.uint64(low), np.uint64(high)
    if high < 0:
        other, one = ~other, ~one + np.uint64(1)
        if one == np.uint64(0):
            other += np.uint64(1)
    if other != np.uint64(bound_high):
        return bool(other < np.uint64(bound_high))
    return bool(one < np.uint64(bound_low))


@compiled
def _is_exact(number: int) -> bool:
    """Whether a double can be this number: it has no more than 53 bits in front of its zeros."""
    left = np.uint64(number)
    if number < 0:
        left = ~left + np.uint64(1)
    while left >= np.uint64(1 << 53):
        if left & np.uint64(1) != np.uint64(0):
            return False
        left >>= np.uint64(1)
    return True


@compiled
def _leaf(
    step: int, at: int, end: int, data: Bytes, program: Numbers, kids: Numbers, is_decimal: bool, put: bool
) -> tuple[int, int, int]:
    """Read a value that consists of no others: what is kept of it, and where it ends; -1 for that when it is none.

    Kept are of a number its bits and what these are of, of a text where it begins and its bytes, of a decimal the low
    and the high half. With `put` the record is known to be sound.
    """
    code = program[step, CODE]
    if code in (INT, LONG):
        one, at = _long(data, at, end)
        if at < 0 or one < program[step, LEAST] or one > program[step, GREATEST]:
            return 0, 0, _FAULT
        if program[step, SIZE] != 0 and not _is_exact(one):
            return 0, 0, _FAULT
        return int(one * program[step, FACTOR]), FROM_NUMBER, at
    if code in (STRING, BYTES, FIXED):
        size = program[step, SIZE]
        if code != FIXED:
            size, at = _long(data, at, end)
        if at < 0 or size < 0 or size > end - at or (code == STRING and not put and not is_utf8(data, at, at + size)):
            return 0, 0, _FAULT
        if is_decimal:
            low, high, fits = _decimal(data, at, size)
            if not fits or not _has_digits(low, high, program[step, LEAST], program[step, GREATEST]):
                return 0, 0, _FAULT
            return low, high, int(at + size)
        return at, int(size), int(at + size)
    if code == BOOLEAN:
        if at >= end or data[at] > 1:
            return 0, 0, _FAULT
        return int(np.int64(data[at])), 0, at + 1
    if code == ENUM:
        index, at = _long(data, at, end)
        if at < 0 or index < 0 or index >= program[step, COUNT]:
            return 0, 0, _FAULT
        symbol = kids[program[step, FIRST] + index]
        return int(symbol), 0, at if symbol >= 0 else _FAULT
    size = 4 if code == FLOAT else 8
    if size > end - at:
        return 0, 0, _FAULT
    bits = np.uint64(0)
    for n in range(size):
        bits |= np.uint64(data[at + n]) << np.uint64(8 * n)
    infinite = np.uint64(0x7F800000) if code == FLOAT else np.uint64(0x7FF0000000000000)
    if bits & infinite == infinite:
        return 0, 0, _FAULT
    return int(np.int64(bits)), FROM_FLOAT if code == FLOAT else FROM_DOUBLE, at + size


@compiled
def _read(
    at: int,
    end: int,
    data: Bytes,
    program: Numbers,
    kids: Numbers,
    slots: Numbers,
    slot_kids: Numbers,
    stack: Numbers,
    counts: Numbers,
    ones: Numbers,
    others: Numbers,
    there: Bytes,
    put: bool,
) -> int:
    """Read a record; returns where it ends, or -1 when it is not what the schema says.

    The values that are being read are on a stack: compiled functions that call themselves cannot be kept on disk.
    """
    step, depth = 0, 0
    while True:
        code, slot, first, count = program[step, CODE], program[step, SLOT], program[step, FIRST], program[step, COUNT]
        if code == UNION:
            index, at = _long(data, at, end)
            if at < 0 or index < 0 or index >= count:
                return _FAULT
            step = kids[first + index]
            continue
        if code == REFUSED:
            return _FAULT
        if code in (RECORD, ARRAY, MAP):
            stack[depth, _STEP], stack[depth, _LEFT], stack[depth, _TOTAL] = step, 0, 0
            stack[depth, _KID] = 0 if code == RECORD else count
            if slot >= 0:
                stack[depth, _PLACE] = slots[slot, BASE] + counts[slot]
                counts[slot] += 1
            depth += 1
        elif code in (NULL, DEFAULT):
            if slot >= 0:
                for kid in range(slots[slot, SLOT_FIRST], slots[slot, SLOT_FIRST] + slots[slot, SLOT_COUNT]):
                    part = slot_kids[kid]
                    if put:
                        place = slots[part, BASE] + counts[part]
                        ones[place], others[place], there[place] = 0, 0, 0
                    counts[part] += 1
        else:
            is_decimal = slot >= 0 and slots[slot, IS_DECIMAL] != 0
            one, other, at = _leaf(step, at, end, data, program, kids, is_decimal, put)
            if at < 0:
                return _FAULT
            if slot >= 0:
                if put:
                    place = slots[slot, BASE] + counts[slot]
                    ones[place], others[place], there[place] = one, other, 1
                counts[slot] += 1
        while True:
            if depth == 0:
                return at
            top = depth - 1
            step = stack[top, _STEP]
            first, count = program[step, FIRST], program[step, COUNT]
            if stack[top, _KID] == count and program[step, CODE] != RECORD:
                if stack[top, _LEFT] == 0:
                    items, at = _long(data, at, end)
                    if items < 0 and at >= 0:
                        items = -items
                        _, at = _long(data, at, end)
                    if at < 0 or items < 0 or items > end - at:
                        return _FAULT
                    stack[top, _LEFT] = items
                if stack[top, _LEFT] > 0:
                    stack[top, _LEFT] -= 1
                    stack[top, _TOTAL] += 1
                    stack[top, _KID] = 0
            if stack[top, _KID] < count:
                stack[top, _KID] += 1
                step = kids[first + stack[top, _KID] - 1]
                break
            if put and program[step, SLOT] >= 0:
                place = stack[top, _PLACE]
                ones[place], others[place], there[place] = stack[top, _TOTAL], 0, 1
            depth -= 1


@compiled
def read_all(
    data: Bytes,
    starts: Numbers,
    ends: Numbers,
    sound: Bytes,
    program: Numbers,
    kids: Numbers,
    slots: Numbers,
    slot_kids: Numbers,
    counts: Numbers,
    ones: Numbers,
    others: Numbers,
    there: Bytes,
    put: bool,
) -> int:
    """Read records; with `put` the values of those that are sound, else which are, and how many values they have."""
    before, stack = counts.copy(), np.zeros((len(program) + 1, _STACK_WIDTH), np.int64)
    for row in range(len(starts)):
        if put and not sound[row]:
            continue
        at = _read(
            starts[row], ends[row], data, program, kids, slots, slot_kids, stack, counts, ones, others, there, put
        )
        if not put:
            sound[row] = at == ends[row]
            if sound[row]:
                before[:] = counts
            else:
                counts[:] = before
    return 0
