"""Functions compiled to machine code, for loops over plain buffers.

Loading this loads numba, which takes a command a quarter of a second: import its users only where they are called.
Without numba, which the extra `platform` brings, they are loops of Python, some 200 times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

numba: Any
try:
    import numba
except ModuleNotFoundError:
    # A module, too: fingerprints follow what is no module.
    numba = ModuleType("numba")
    numba.njit = lambda **options: lambda function: function

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compiles a function to machine code at its first call and caches the code on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
