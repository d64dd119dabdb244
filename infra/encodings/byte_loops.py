"""Compiled loops over bytes that readers of several encodings share."""

from __future__ import annotations

from infra.archive.format.record_parser import copy_behind
from infra.compiled import Bytes, Numbers, compiled


@compiled
def is_utf8(data: Bytes, at: int, end: int) -> bool:
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
        elif 0xF0 <= first <= 0xF4:
            more = 3
        else:
            return False
        if at + more >= end:
            return False
        second = data[at + 1]
        if (
            (first == 0xE0 and second < 0xA0)
            or (first == 0xED and second > 0x9F)
            or (first == 0xF0 and second < 0x90)
            or (first == 0xF4 and second > 0x8F)
        ):
            return False
        for n in range(1, more + 1):
            if data[at + n] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@compiled
def gather(data: Bytes, starts: Numbers, sizes: Numbers, into: Bytes) -> int:
    """Copy ranges of bytes one behind the other."""
    used = 0
    for n in range(len(starts)):
        used = copy_behind(data, starts[n], sizes[n], into, used)
    return used
