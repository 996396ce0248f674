"""Output plans: what a declaration's body says of the outputs, as a small program over int64.

Python writes a plan (dispatch/standins.py has the same numbers); the router runs it once per call:

    guards      : count, then that many expressions, each of which must be non-zero
    outputs     : count, then that many outputs
    output      : kind, dtype, device type, device index, rank, then what the kind needs
      ROW_MAJOR : `rank` size expressions
      STRIDED   : `rank` size expressions, `rank` stride expressions
      LIKE      : the index of a tensor whose sizes and strides are taken as they are
    expression  : opcodes in postfix order, closed by END
"""

from std.memory import stack_allocation

from torch.abi import empty_strided, free_tensor
from torch.words import load, store

comptime END = 0
comptime CONST = 1
comptime SIZE = 2
comptime STRIDE = 3
comptime VALUE = 4
comptime ITEM = 5
comptime ADD = 6
comptime SUB = 7
comptime MUL = 8
comptime FLOORDIV = 9
comptime MOD = 10
comptime MIN = 11
comptime MAX = 12
comptime EQ = 13
comptime NE = 14
comptime LT = 15
comptime LE = 16

comptime ROW_MAJOR = 0
comptime STRIDED = 1
comptime LIKE = 2

comptime MAX_RANK = 64
comptime DEPTH = 32


struct Plan(Copyable, Movable):
    """A cursor over a plan's words; `flat` holds what the call's arguments are."""

    var address: Int
    var at: Int
    var flat: Int
    var failed: Bool

    def __init__(out self, address: Int, flat: Int):
        self.address = address
        self.at = 0
        self.flat = flat
        self.failed = False

    @always_inline
    def next(mut self) -> Int:
        var word = load(self.address, self.at)
        self.at += 1
        return word

    def evaluate(mut self) -> Int:
        """Runs one expression; sets `failed` when it divides by zero."""
        var stack = stack_allocation[DEPTH, Int]()
        var top = -1
        while True:
            var op = self.next()
            if op == END:
                return stack[unsafe_offset=0]
            elif op == CONST:
                top += 1
                stack[unsafe_offset=top] = self.next()
            elif op == SIZE:
                var slot = self.next()
                top += 1
                stack[unsafe_offset=top] = load(load(self.flat, slot + 1), self.next())
            elif op == STRIDE:
                var slot = self.next()
                top += 1
                stack[unsafe_offset=top] = load(load(self.flat, slot + 2), self.next())
            elif op == VALUE:
                top += 1
                stack[unsafe_offset=top] = load(self.flat, self.next())
            elif op == ITEM:
                var slot = self.next()
                top += 1
                stack[unsafe_offset=top] = load(load(self.flat, slot), self.next())
            else:
                var b = stack[unsafe_offset=top]
                top -= 1
                var a = stack[unsafe_offset=top]
                if op == ADD:
                    stack[unsafe_offset=top] = a + b
                elif op == SUB:
                    stack[unsafe_offset=top] = a - b
                elif op == MUL:
                    stack[unsafe_offset=top] = a * b
                elif op == FLOORDIV or op == MOD:
                    if b == 0:
                        self.failed = True
                        b = 1
                    stack[unsafe_offset=top] = a // b if op == FLOORDIV else a % b
                elif op == MIN:
                    stack[unsafe_offset=top] = min(a, b)
                elif op == MAX:
                    stack[unsafe_offset=top] = max(a, b)
                elif op == EQ:
                    stack[unsafe_offset=top] = Int(a == b)
                elif op == NE:
                    stack[unsafe_offset=top] = Int(a != b)
                elif op == LT:
                    stack[unsafe_offset=top] = Int(a < b)
                else:
                    stack[unsafe_offset=top] = Int(a <= b)


def guards_hold(mut plan: Plan) -> Bool:
    """Tells whether the plan was traced for sizes like this call's."""
    var ok = True
    for _ in range(plan.next()):
        ok = plan.evaluate() != 0 and ok
    return ok and not plan.failed


@always_inline
def allocate(mut plan: Plan, outs: Int) -> Int:
    """Allocates the outputs into the words behind `outs`.

    Returns how many there are, or -1 if libtorch refused one or a size came out negative; then none is left.
    """
    var count = plan.next()
    for k in range(count):
        var kind = plan.next()
        var dtype = plan.next()
        var device_type = plan.next()
        var device_index = plan.next()
        var rank = plan.next()
        var tensor = 0
        if kind == LIKE:
            var slot = plan.next()
            tensor = empty_strided(
                rank,
                load(plan.flat, slot + 1),
                load(plan.flat, slot + 2),
                dtype,
                device_type,
                device_index,
            )
        else:
            tensor = allocate_computed(plan, kind, dtype, device_type, device_index, rank)
        if tensor == 0:
            for j in range(k):
                free_tensor(load(outs, j))
            return -1
        store(outs, k, tensor)
    return count


def allocate_computed(
    mut plan: Plan, kind: Int, dtype: Int, device_type: Int, device_index: Int, rank: Int
) -> Int:
    """Allocates one output whose sizes are expressions."""
    var sizes = Int(stack_allocation[MAX_RANK, Int]())
    var strides = Int(stack_allocation[MAX_RANK, Int]())
    for d in range(rank):
        var size = plan.evaluate()
        store(sizes, d, size)
        if size < 0:
            plan.failed = True
    if kind == STRIDED:
        for d in range(rank):
            store(strides, d, plan.evaluate())
    else:
        var stride = 1
        for d in range(rank - 1, -1, -1):
            store(strides, d, stride)
            stride *= max(load(sizes, d), 1)
    if plan.failed:
        return 0
    return empty_strided(rank, sizes, strides, dtype, device_type, device_index)
