"""Functions compiled to machine code, for loops over plain buffers.

Loading this loads numba, which takes a command a quarter of a second: import its users only where they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compiles a function to machine code at its first call and caches the code on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
