"""Counts the names in JSON texts without parsing them."""

from __future__ import annotations

import numpy as np

from twofold_archive.format.compiled import Bytes, Numbers, compiled

_COLON, _QUOTE, _ESCAPE, _U, _ZERO, _TWO, _THREE, _A = 0x3A, 0x22, 0x5C, 0x75, 0x30, 0x32, 0x33, 0x61
_LOWER = 0x20


@compiled
def count_names(data: Bytes, bounds: Numbers) -> tuple[Numbers, Bytes]:
    """Counts `":` in each text, and marks texts in which a name may escape that count.

    A name may do so if white space precedes its colon, or if a quotation mark or a colon is escaped by its code.

    Args:
        bounds: the start of each text, and the end of the last one.
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
