"""Steps of fused optimizers, one pass over each tensor, and the negative log likelihood; a library for all floating dtypes.

Halves are computed in float32. A call has words (addresses, counts, switches) and numbers (float64).
"""

from std.math import sqrt
from std.memory import Pointer
from std.sys import simd_width_of

from torch.tasks import OnRange, at, share
from torch.words import WordPtr

comptime Numbers = Pointer[Float64, MutAnyOrigin]
comptime GRAIN = 16384

comptime accum_of[T: DType] = DType.float64 if T == DType.float64 else DType.float32

# words of an optimizer's step
comptime COUNT = 1
comptime NUMBERS = 2
comptime PARAM = 3
comptime GRAD = 4
comptime FIRST = 5  # the mean of the gradients, or the momentum
comptime SECOND = 6  # of their squares
comptime LARGEST = 7  # of those, or 0
comptime DECOUPLED = 8  # AdamW
comptime MAXIMIZE = 9
comptime SCALED = 10
comptime NESTEROV = 8  # of SGD
comptime IS_FIRST = 7


@always_inline
def take[
    T: DType, width: Int
](p: Pointer[Scalar[T], MutAnyOrigin], i: Int) -> SIMD[accum_of[T], width]:
    return p.unsafe_offset(i).unsafe_load[width]().cast[accum_of[T]]()


@always_inline
def put[
    T: DType, width: Int
](p: Pointer[Scalar[T], MutAnyOrigin], i: Int, value: SIMD[accum_of[T], width]):
    p.unsafe_offset(i).unsafe_store(value.cast[T]())


@always_inline
def gradient[
    T: DType, width: Int
](work: WordPtr, numbers: Numbers, i: Int) -> SIMD[accum_of[T], width]:
    """Reads the gradient; an unscaled one is written back, as torch does."""
    var grad = at[T](work, GRAD)
    var g = take[T, width](grad, i)
    if work[unsafe_offset=SCALED] != 0:
        g /= numbers[unsafe_offset=0].cast[accum_of[T]]()
        put[T](grad, i, g)
    return -g if work[unsafe_offset=MAXIMIZE] != 0 else g


@always_inline
def adam[T: DType, width: Int](work: WordPtr, numbers: Numbers, i: Int):
    """One step; numbers are scale, lr, beta1, beta2, decay, eps, and both corrections of the bias."""
    comptime A = accum_of[T]
    @always_inline
    def n(k: Int) {var numbers} -> Scalar[A]:
        return numbers[unsafe_offset=k].cast[A]()
    var param = at[T](work, PARAM)
    var p = take[T, width](param, i)
    var g = gradient[T, width](work, numbers, i)
    if work[unsafe_offset=DECOUPLED] != 0:
        p -= n(1) * n(4) * p
    else:
        g += n(4) * p
    var m = take[T, width](at[T](work, FIRST), i)
    var v = take[T, width](at[T](work, SECOND), i)
    m += (1 - n(2)) * (g - m)
    v = v * n(3) + (1 - n(3)) * g * g
    put[T](at[T](work, FIRST), i, m)
    put[T](at[T](work, SECOND), i, v)
    if work[unsafe_offset=LARGEST] != 0:
        var most = take[T, width](at[T](work, LARGEST), i)
        v = most.gt(v).select(most, v)
        put[T](at[T](work, LARGEST), i, v)
    var size = sqrt(v) / SIMD[A, width](n(7)) + n(5)
    put[T](param, i, p - n(6) * m / size)


@always_inline
def sgd[T: DType, width: Int](work: WordPtr, numbers: Numbers, i: Int):
    """One step; numbers are scale, lr, momentum, dampening and decay."""
    comptime A = accum_of[T]
    @always_inline
    def n(k: Int) {var numbers} -> Scalar[A]:
        return numbers[unsafe_offset=k].cast[A]()
    var param = at[T](work, PARAM)
    var p = take[T, width](param, i)
    var g = gradient[T, width](work, numbers, i)
    g += n(4) * p
    if work[unsafe_offset=FIRST] != 0:
        var buffer = g
        if work[unsafe_offset=IS_FIRST] == 0:
            buffer = take[T, width](at[T](work, FIRST), i) * n(2) + (1 - n(3)) * g
        put[T](at[T](work, FIRST), i, buffer)
        g = g + n(2) * buffer if work[unsafe_offset=NESTEROV] != 0 else buffer
    put[T](param, i, p - n(1) * g)


def steps[which: Int, T: DType](begin: Int64, end: Int64, work: WordPtr) abi("C"):
    comptime W = simd_width_of[accum_of[T]]()
    var numbers = Numbers(unsafe_from_address=work[unsafe_offset=NUMBERS])
    var i = Int(begin)
    while i + W <= Int(end):
        comptime if which == 0:
            adam[T, W](work, numbers, i)
        else:
            sgd[T, W](work, numbers, i)
        i += W
    while i < Int(end):
        comptime if which == 0:
            adam[T, 1](work, numbers, i)
        else:
            sgd[T, 1](work, numbers, i)
        i += 1


def step_all[which: Int, T: DType](work: WordPtr):
    var f: OnRange = steps[which, T]
    share(f, work[unsafe_offset=COUNT], GRAIN, work)


@always_inline
def step_of[which: Int](work: WordPtr):
    """Runs a step for the dtype that the first word names by its place in `_DTYPES`."""
    comptime for k in range(4):
        comptime dtypes = [DType.float32, DType.float64, DType.float16, DType.bfloat16]
        if work[unsafe_offset=0] == k:
            step_all[which, dtypes[k]](work)


@export
def tm_adam(work: WordPtr) abi("C"):
    step_of[0](work)


@export
def tm_sgd(work: WordPtr) abi("C"):
    step_of[1](work)


# words of a negative log likelihood: (batch, classes, rest), targets (batch, rest) of int64
comptime BATCH = 1
comptime CLASSES = 2
comptime REST = 3
comptime INPUT = 4
comptime TARGET = 5
comptime WEIGHT = 6  # or 0
comptime IGNORED = 7
comptime REDUCTION = 8
comptime OUTPUT = 9  # of the backward: the gradient of the input, cleared
comptime TOTAL = 10
comptime GRAD_OUTPUT = 4  # of the backward, which reads no input


def likelihood[T: DType, backward: Bool](work: WordPtr) -> Int:
    """Returns -1, or the place of a target that is no class."""
    comptime A = DType.float64
    var rest = work[unsafe_offset=REST]
    var classes = work[unsafe_offset=CLASSES]
    var reduction = work[unsafe_offset=REDUCTION]
    var target = at[DType.int64](work, TARGET)
    var weight = at[T](work, WEIGHT)
    var weighted = work[unsafe_offset=WEIGHT] != 0
    var source = at[T](work, INPUT)
    var out = at[T](work, OUTPUT)
    var total = at[T](work, TOTAL)
    var sum = Scalar[A](0)
    var weights = Scalar[A](0)
    for i in range(work[unsafe_offset=BATCH] * rest):
        var label = Int(target.unsafe_offset(i)[])
        if label == work[unsafe_offset=IGNORED]:
            comptime if not backward:
                if reduction == 0:
                    out.unsafe_offset(i)[] = 0
            continue
        if label < 0 or label >= classes:
            return i
        var place = (i // rest * classes + label) * rest + i % rest
        var w = weight.unsafe_offset(label)[].cast[A]() if weighted else Scalar[A](1)
        comptime if backward:
            var g = source.unsafe_offset(i if reduction == 0 else 0)[].cast[A]()
            if reduction == 1:
                g /= total[].cast[A]()
            out.unsafe_offset(place)[] = (-w * g).cast[T]()
        else:
            var loss = -w * source.unsafe_offset(place)[].cast[A]()
            weights += w
            if reduction == 0:
                out.unsafe_offset(i)[] = loss.cast[T]()
            else:
                sum += loss
    comptime if not backward:
        total[] = 0 if reduction == 0 else weights.cast[T]()
        if reduction != 0:
            out[] = (sum / weights if reduction == 1 else sum).cast[T]()
    return -1


@always_inline
def likelihood_of[backward: Bool](work: WordPtr) -> Int:
    comptime for k in range(4):
        comptime dtypes = [DType.float32, DType.float64, DType.float16, DType.bfloat16]
        if work[unsafe_offset=0] == k:
            return likelihood[dtypes[k], backward](work)
    return -1


@export
def tm_nll(work: WordPtr) abi("C") -> Int:
    return likelihood_of[False](work)


@export
def tm_nll_backward(work: WordPtr) abi("C") -> Int:
    return likelihood_of[True](work)
