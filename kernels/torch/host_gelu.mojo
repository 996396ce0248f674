"""gelu and its gradient, whose argument `approximate` says which of two rows is meant."""

from std.memory import Pointer, stack_allocation

from torch.host_boxed import FUNCTOR_DATA, argument, arguments, return_argument
from torch.host_rows import COUNT, OTHER_ROW, ROW, run_out
from torch.words import load, store


@always_inline
def is_tanh(text: Int) -> Bool:
    """Tells the two kinds of gelu apart: none and tanh."""
    return Pointer[UInt8, MutAnyOrigin](unsafe_from_address=text)[] == 116


def gelu_unboxed(
    functor: Int, keys: Int, input: Int, length: Int, text: Int, goal: Int
) abi("C") -> Int:
    """gelu.out(self, approximate, out); a string_view is its length and its address."""
    var list = Int(stack_allocation[2, Int]())
    store(list, 0, input)
    store(list, 1, goal)
    return run_out(functor, list, load(functor, OTHER_ROW if is_tanh(text) else ROW))


def gelu_backward_unboxed(
    functor: Int, keys: Int, grad: Int, input: Int, length: Int, text: Int, goal: Int
) abi("C") -> Int:
    """gelu_backward.grad_input(grad_output, self, approximate, grad_input)."""
    var list = Int(stack_allocation[3, Int]())
    store(list, 0, grad)
    store(list, 1, input)
    store(list, 2, goal)
    return run_out(functor, list, load(functor, OTHER_ROW if is_tanh(text) else ROW))


def gelu_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    """Both: the tensors, then the string, then the output."""
    var tensors = load(functor, COUNT) - 1
    var first = arguments(stack, tensors + 2)
    var list = Int(stack_allocation[3, Int]())
    for i in range(tensors):
        store(list, i, argument(first, i))
    store(list, tensors, argument(first, tensors + 1))
    var text = load(load(argument(first, tensors), 0), 2)  # of the std::string in a ConstantString
    _ = run_out(functor, list, load(functor, OTHER_ROW if is_tanh(text) else ROW))
    return_argument(stack, tensors + 2, tensors + 1)
