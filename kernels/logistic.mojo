"""The logistic function."""

from std.math import exp
from std.sys import is_nvidia_gpu, llvm_intrinsic
from std.utils.numerics import isnan


@always_inline
def logistic[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width] where dtype.is_floating_point():
    """Returns 1 / (1 + e^-x), 0 and 1 where that is infinite; nan where x is nan."""
    var below = 1 + exp(-x)
    comptime if is_nvidia_gpu() and dtype == .float32:
        # exact division takes more time than all else here; this is right to the last bit but one
        var found = SIMD[dtype, width]()
        comptime for i in range(Int(width)):
            found[i] = rebind[Scalar[dtype]](
                llvm_intrinsic["llvm.nvvm.rcp.approx.ftz.f", Float32, has_side_effect=False](
                    rebind[Float32](below[i])
                )
            )
        return found
    else:
        return isnan(x).select(x, 1 / below)  # the library's exp has a number for nan
