"""Matrix products of the device: mm, addmm, bmm and baddbmm, with out."""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch import abi
from torch.cxx import PRIVATEUSE1, storage_of
from torch.host_boxed import argument, arguments, return_argument
from torch.host_numbers import is_floating, number_of
from torch.host_rows import COUNT, KINDS, NUMBER, ROW, UNSUPPORTED, go_slow, kind_of, take_arguments
from torch.host_state import MISS, TABLES, host_state
from torch.products import P_A, P_ALPHA, P_A_STEPS, P_B, P_BATCH_STEPS, P_BETA, P_BIAS
from torch.products import P_BIAS_STEPS, P_B_STEPS, P_C, P_C_STEPS, P_K, P_M, P_N
from torch.words import WordPtr, function_at, load, pointer, store

comptime TABLE_AT = 96  # of the tables of products, in the words of the state's tables
comptime WORK = 1 << 17  # multiplications that are worth another thread
comptime Miss = def(dtype: Int) thin abi("C") -> Int
comptime TaskFunction = def(begin: Int64, end: Int64, work: WordPtr) thin abi("C") -> None


@always_inline
def put_matrix(work: Int, tensor: Int, address: Int, steps: Int, batch: Int, batched: Bool):
    """Writes a matrix: where it lies, its two steps and that of the batch."""
    var first = 1 if batched else 0
    store(work, address, abi.data_of(tensor, address == P_C))
    store(work, steps, load(abi.strides_of(tensor), first))
    store(work, steps + 1, load(abi.strides_of(tensor), first + 1))
    store(work, batch, load(abi.strides_of(tensor), 0) if batched else 0)


def multiply(
    functor: Int, bias: Int, a: Int, b: Int, goal: Int, beta: Int, alpha: Int, batched: Bool
) -> Bool:
    """Computes a product, with a bias if there is one; returns False if it is none for this."""
    var rank = 3 if batched else 2
    var dtype = abi.dtype_of(goal)
    if abi.dtype_of(a) != dtype or abi.dtype_of(b) != dtype or dtype >= 32:
        return False
    if abi.rank_of(a) != rank or abi.rank_of(b) != rank or abi.rank_of(goal) != rank:
        return False
    var index = abi.device_index_of(goal)
    for i in range(3):
        var t = a if i == 0 else b if i == 1 else goal
        if abi.device_type_of(t) != PRIVATEUSE1 or abi.device_index_of(t) != index:
            return False
    var first = rank - 2
    var m = load(abi.sizes_of(a), first)
    var k = load(abi.sizes_of(a), first + 1)
    var n = load(abi.sizes_of(b), first + 1)
    var batch = load(abi.sizes_of(a), 0) if batched else 1
    if load(abi.sizes_of(b), first) != k or load(abi.sizes_of(goal), first) != m:
        return False
    if load(abi.sizes_of(goal), first + 1) != n:
        return False
    if batched and (
        load(abi.sizes_of(b), 0) != batch or load(abi.sizes_of(goal), 0) != batch
    ):
        return False
    var mine = storage_of(abi.tensor_impl(goal))
    if storage_of(abi.tensor_impl(a)) == mine or storage_of(abi.tensor_impl(b)) == mine:
        return False
    var work = Int(stack_allocation[32, Int]())
    var one = Float64(1)
    store(work, P_ALPHA, Pointer(to=one).unsafe_bitcast[Int]()[])
    store(work, P_BETA, 0)
    store(work, P_BIAS, 0)
    var numbers = Int(stack_allocation[4, Int]())
    if bias != 0:
        if not number_of(alpha, numbers) or not number_of(beta, numbers + 16):
            return False
        store(work, P_ALPHA, load(numbers, 0))
        store(work, P_BETA, load(numbers, 2))
        var added = load(numbers, 2) != 0
        if added:
            if abi.dtype_of(bias) != dtype or abi.device_type_of(bias) != PRIVATEUSE1:
                return False
            if abi.rank_of(bias) > rank or abi.device_index_of(bias) != index:
                return False
            if storage_of(abi.tensor_impl(bias)) == mine and (
                abi.data_of(bias, False) != abi.data_of(goal, False) or abi.rank_of(bias) != rank
            ):
                return False
            store(work, P_BIAS, abi.data_of(bias, False))
            for i in range(3):
                var d = 2 - i
                var own = abi.rank_of(bias) - 1 - i
                var size = batch if d == 0 else m if d == 1 else n
                var step = 0
                if own >= 0 and load(abi.sizes_of(bias), own) != 1:
                    if load(abi.sizes_of(bias), own) != size:
                        return False
                    step = load(abi.strides_of(bias), own)
                    if storage_of(abi.tensor_impl(bias)) == mine and step != load(
                        abi.strides_of(goal), own
                    ):
                        return False
                store(work, P_BATCH_STEPS + 3 if d == 0 else P_BIAS_STEPS + d - 1, step)
    var tables = load(host_state(), TABLES)
    var table = load(tables, TABLE_AT + dtype)
    if table == 0:
        table = function_at[Miss](load(host_state(), MISS))(TABLE_AT + dtype)
        if table & 1 != 0 and table != UNSUPPORTED:
            abi.throw(table - 1)
    if table == UNSUPPORTED:
        return False
    if m == 0 or n == 0 or batch == 0:
        return True
    store(work, P_M, m)
    store(work, P_N, n)
    store(work, P_K, k)
    put_matrix(work, a, P_A, P_A_STEPS, P_BATCH_STEPS, batched)
    put_matrix(work, b, P_B, P_B_STEPS, P_BATCH_STEPS + 1, batched)
    put_matrix(work, goal, P_C, P_C_STEPS, P_BATCH_STEPS + 2, batched)
    var columns = load(table, 1)
    var rows = load(table, 2)
    var tasks = batch * ((m + rows - 1) // rows) * ((n + columns - 1) // columns)
    var each = max(batch * m * n * k // tasks, 1)
    if tasks * each < 2 * WORK:
        function_at[TaskFunction](load(table, 0))(0, Int64(tasks), pointer(work))
    else:
        _ = external_call["torch_parallel_for", Int32](
            Int64(0),
            Int64(tasks),
            Int64(max(WORK // each, 1)),
            load(table, 0),
            pointer(work),
        )
    return True


@always_inline
def run_product(functor: Int, list: Int) -> Int:
    """Runs (self, mat2, out) or (self, mat1, mat2, beta, alpha, out); the functor's row says whether in batches."""
    var batched = load(functor, ROW) != 0
    if load(functor, COUNT) == 3:
        var goal = load(list, 2)
        if not multiply(functor, 0, load(list, 0), load(list, 1), goal, 0, 0, batched):
            go_slow(functor, list, 0)
        return goal
    var goal = load(list, 5)
    if not multiply(
        functor,
        load(list, 0),
        load(list, 1),
        load(list, 2),
        goal,
        load(list, 3),
        load(list, 4),
        batched,
    ):
        go_slow(functor, list, 0)
    return goal


def product_unboxed(
    functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
) abi("C") -> Int:
    var list = Int(stack_allocation[6, Int]())
    store(list, 0, a0)
    store(list, 1, a1)
    store(list, 2, a2)
    store(list, 3, a3)
    store(list, 4, a4)
    store(list, 5, a5)
    return run_product(functor, list)


def product_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var count = load(functor, COUNT)
    var list = Int(stack_allocation[8, Int]())
    var scalars = Int(stack_allocation[64, Int]())
    take_arguments(functor, arguments(stack, count), list, scalars)
    _ = run_product(functor, list)
    return_argument(stack, count, count - 1)
