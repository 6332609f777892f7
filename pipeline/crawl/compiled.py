"""Numba's `njit`, in a process that may start vLLM."""

from llvmlite.binding.ffi import lib
from numba import njit

__all__ = ["njit"]

# vLLM 0.32 looks for its kernels in `vars(value)` of all that loaded modules hold. This library would answer
# with a C function of the name `__dict__`, so it is told that it has an empty one.
lib._fntab["__dict__"] = {}
