"""The functions of slots for which the router has none of its own.

dispatch/router.py builds this text for each further page of slots, and fills in the first one's number and how many
they are.
"""

from std.ffi import external_call
from std.memory import Pointer

from torch.route import Boxed

comptime FIRST = 0
comptime SLOTS = 0


def kernel[index: Int](stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    external_call["tm_run_kernel", NoneType](index, stack)


def gate[index: Int](stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    external_call["tm_run_gate", NoneType](index, stack)


@export
def tm_slot_function(index: Int, autograd: Int) abi("C") -> Int:
    """Returns the address of a slot's `kernel` or `gate`; `index` counts from FIRST."""
    comptime for k in range(SLOTS):
        if index == k:
            var f: Boxed = kernel[FIRST + k]
            var g: Boxed = gate[FIRST + k]
            return Pointer(to=g if autograd != 0 else f).unsafe_bitcast[Int]()[]
    return 0
