"""MAX's parallel loops on torch's threads.

Specializations are linked so that their calls of three runtime functions come here. A kernel that calls
`foreach` or `parallelize` then obeys `torch.set_num_threads`, shares torch's pool and survives a fork.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch.words import function_at, load, pointer, store

comptime CPU_PARALLELISM = 1000  # the attribute by which a host context tells how many threads it has

comptime OnCoroutine = def(handle: Int) thin abi("C") -> None
comptime OnRange = def(begin: Int64, end: Int64, work: Int) thin abi("C") -> None


def threads() -> Int:
    var count = Int(stack_allocation[1, Int]())
    store(count, 0, 0)
    _ = external_call["torch_get_num_threads", Int32](pointer(count))
    return max(load(count, 0) & 0xFFFFFFFF, 1)


def run_coroutines(begin: Int64, end: Int64, work: Int) abi("C"):
    """Runs some of a range's coroutines; `work` holds resume, destroy and the handles."""
    for i in range(Int(begin), Int(end)):
        var handle = load(load(work, 2), i)
        function_at[OnCoroutine](load(work, 0))(handle)
        function_at[OnCoroutine](load(work, 1))(handle)


def run_range(resume: Int, destroy: Int, handles: Int, count: Int):
    """Runs `count` coroutines and returns when all are done."""
    var work = Int(stack_allocation[3, Int]())
    store(work, 0, resume)
    store(work, 1, destroy)
    store(work, 2, handles)
    if count == 1:
        run_coroutines(0, 1, work)
        return
    var f: OnRange = run_coroutines
    var function = Pointer(to=f).unsafe_bitcast[Int]()[]
    _ = external_call["torch_parallel_for", Int32](
        Int64(0), Int64(count), Int64(1), function, pointer(work)
    )


def get_attribute(result: Int, context: Int, attribute: Int) -> Int:
    """Answers for the number of threads, and asks the runtime for all else."""
    if attribute & 0xFFFFFFFF == CPU_PARALLELISM:
        Pointer[Int32, MutAnyOrigin](unsafe_from_address=result)[] = Int32(threads())
        return 0
    return external_call["AsyncRT_DeviceContext_getAttribute", Int](result, context, attribute)
