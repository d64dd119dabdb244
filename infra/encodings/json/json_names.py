"""Counts the names in JSON texts without parsing them."""

from __future__ import annotations

import numpy as np

from infra.compiled import Bytes, Numbers, compiled

_COLON, _QUOTE, _ESCAPE, _U, _ZERO, _TWO, _THREE, _A = 0x3A, 0x22, 0x5C, 0x75, 0x30, 0x32, 0x33, 0x61
_LOWER = 0x20


@compiled
def count_names(data: Bytes, bounds: Numbers) -> tuple[Numbers, Bytes]:
    """Count `":` in each text, and say whether a name may hide from that count.

    It may behind white space before a colon, and where a quotation mark or a colon is written as its number.

    Args:
        bounds: where each text begins, and where the last one ends.
    """
    counts, is_odd = np.zeros(len(bounds) - 1, np.int64), np.zeros(len(bounds) - 1, np.uint8)
    for row in range(len(bounds) - 1):
        start, end = bounds[row], bounds[row + 1]
        count = 0
        for at in range(start + 1, end):
            if data[at] == _COLON:
                before = data[at - 1]
                if before == _QUOTE:
                    count += 1
                elif before <= 0x20:
                    is_odd[row] = 1
            elif (
                data[at] == _U
                and data[at - 1] == _ESCAPE
                and at + 4 < end
                and data[at + 1] == _ZERO
                and data[at + 2] == _ZERO
                and (
                    (data[at + 3] == _TWO and data[at + 4] == _TWO)
                    or (data[at + 3] == _THREE and data[at + 4] | _LOWER == _A)
                )
            ):
                is_odd[row] = 1
        counts[row] = count
    return counts, is_odd
