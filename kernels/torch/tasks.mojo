"""Work on the words of a call, shared among torch's threads."""

from std.ffi import external_call
from std.memory import Pointer

from torch.words import WordPtr

comptime OnRange = def(begin: Int64, end: Int64, work: WordPtr) thin abi("C") -> None


@always_inline
def at[T: DType](work: WordPtr, i: Int) -> Pointer[Scalar[T], MutAnyOrigin]:
    """Returns the elements whose address is word `i`."""
    return Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=work[unsafe_offset=i])


@always_inline
def share(f: OnRange, count: Int, grain: Int, work: WordPtr):
    """Runs a function over 0 to count, on torch's threads if there is work for two."""
    if count < 2 * grain:
        f(0, Int64(count), work)
        return
    var function = f
    _ = external_call["torch_parallel_for", Int32](
        Int64(0),
        Int64(count),
        Int64(max(grain, 1)),
        Pointer(to=function).unsafe_bitcast[Int]()[],
        work,
    )
