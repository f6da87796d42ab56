"""Matrix products of SciPy's BLAS, called from compiled code."""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

from td3robot.learning.compiled import jit

Flat = NDArray[np.float32]


class Blas(NamedTuple):
    """The product's address, and space for the arguments that Fortran takes by address."""

    sgemm: int
    letters: NDArray[np.uint8]  # "N" for a matrix as stored, "T" for its transpose
    sizes: NDArray[np.int32]
    factors: NDArray[np.float32]


def make_blas() -> Blas:
    """Return what :func:`product` needs."""
    address = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    letters = np.frombuffer(b"NT", np.uint8).copy()
    return Blas(address, letters, np.zeros(6, np.int32), np.array([1.0, 0.0], np.float32))


@intrinsic
def call(_context: Any, address: Any, pointers: Any) -> Any:
    """Call the function at an address with a tuple of pointers; it returns nothing."""

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        """Emit the call."""
        number = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [number] * len(pointers)).as_pointer()
        builder.call(builder.inttoptr(values[0], function), cgutils.unpack_tuple(builder, values[1]))  # type: ignore[no-untyped-call]

    return types.void(address, pointers), codegen


@jit
def product(
    blas: Blas, rows: int, columns: int, inner: int, a: Flat, a_turned: bool, b: Flat, b_turned: bool, out: Flat
) -> None:
    """Write the product of a (rows, inner) and b (inner, columns) into out (rows, columns).

    All three are flat arrays that begin with the matrix in row-major order; a ``turned`` one is stored transposed.
    Fortran is column-major, so it computes the transpose: that of b times that of a.
    """
    sizes = blas.sizes
    sizes[0], sizes[1], sizes[2] = columns, rows, inner
    sizes[3] = inner if b_turned else columns
    sizes[4] = rows if a_turned else inner
    sizes[5] = columns
    letter, size, factor = blas.letters.ctypes.data, sizes.ctypes.data, blas.factors.ctypes.data
    b_letter = letter + types.uintp(1) if b_turned else letter
    a_letter = letter + types.uintp(1) if a_turned else letter
    call(  # type: ignore[call-arg]
        blas.sgemm,
        (
            b_letter, a_letter, size, size + types.uintp(4), size + types.uintp(8),
            factor, b.ctypes.data, size + types.uintp(12), a.ctypes.data, size + types.uintp(16),
            factor + types.uintp(4), out.ctypes.data, size + types.uintp(20),
        ),
    )  # fmt: skip
