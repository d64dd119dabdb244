"""Bloom filters as Spark columns: built by an aggregate, merged and queried when served.

A filter says of a value that it is surely no member, or that it may be one. It is two bitmaps of 32,768 bits, one after
the other; a member sets one bit of each, so a filter of n members takes a stranger for one with a probability of
(1 - e^(-n/32768))^2: 0.1 % for 1,000 members, 7 % for 10,000. It holds no error of its own: the same members make the
same bytes in any order, in the stream and in the batch, so that tables need not declare it `tolerances`.

MD5, which every engine has, chooses the bits: the number of a bit is that of four hexadecimal digits of the value's
digest, the first four for the first bitmap, the next for the second, modulo 32,768; bit b is bit b % 8, counted from
the least, of byte b // 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

BITS = 32_768  # of what Spark calls a bitmap
BYTES = BITS // 8
BITMAPS = 2
_DIGITS = 4


def members(column: str) -> Column:
    """Builds an aggregate: the filter, as binary, of the values of a column, without nulls."""
    from pyspark.sql import functions as F

    return F.concat(*(F.bitmap_construct_agg(_bit(F.col(column), nth)) for nth in range(BITMAPS)))


def members_of_all(filters: str) -> Column:
    """Builds an aggregate: the filter of all members of the filters in a column."""
    from pyspark.sql import functions as F

    return F.concat(*(F.bitmap_or_agg(_bitmap(F.col(filters), nth)) for nth in range(BITMAPS)))


def may_hold(filters: str, value: Column) -> Column:
    """Whether a value may be a member of the filter in a column; always true for a member, null for null."""
    from pyspark.sql import functions as F

    def is_set(nth: int) -> Column:
        bit = _bit(value, nth)
        byte = F.substring(_bitmap(F.col(filters), nth), (bit / 8).cast("int") + 1, F.lit(1))
        return F.getbit(F.conv(F.hex(byte), 16, 10).cast("bigint"), (bit % 8).cast("int")) == 1

    first, second = (is_set(nth) for nth in range(BITMAPS))
    return first & second


def _bit(value: Column, nth: int) -> Column:
    from pyspark.sql import functions as F

    digits = F.substring(F.md5(value.cast("string")), 1 + nth * _DIGITS, _DIGITS)
    return F.conv(digits, 16, 10).cast("bigint") % BITS


def _bitmap(filters: Column, nth: int) -> Column:
    from pyspark.sql import functions as F

    return F.substring(filters, 1 + nth * BYTES, BYTES)
