"""Operators of inline kernels, for a library that is built ahead of time; a test copies this file."""

try:
    import torch_mojo
except ImportError:
    import _torch_mojo_pools as torch_mojo

_pool = torch_mojo.kernel(
    "pool",
    inputs={"x": "T[..., n]", "scale": "f32"},
    outputs={"y": "T[..., n // K]"},
    params={"K": 2, "largest": True},
    grid="y.size",
    source="""
        var at = thread_position_in_grid.x
        var found = x[at * K]
        comptime for k in range(1, K):
            comptime if largest:
                found = max(found, x[at * K + k])
            else:
                found = min(found, x[at * K + k])
        y[at] = found * scale.cast[T]()
    """,
)
_pool_backward = torch_mojo.kernel(
    "pool_backward",
    inputs={"grad": "f32[n // 2]", "x": "f32[n]", "scale": "f32"},
    outputs={"grad_x": "f32[n]"},
    grid="grad.size",
    source="""
        var at = 2 * thread_position_in_grid.x
        var first = x[at] >= x[at + 1]
        var g = grad[thread_position_in_grid.x] * scale
        grad_x[at] = g if first else 0
        grad_x[at + 1] = 0 if first else g
    """,
)
pool = _pool.as_op("ship_pools::pool")
pool_backward = _pool_backward.as_op("ship_pools::pool_backward")


def _save(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx, grad):
    return pool_backward(grad, *ctx.saved_tensors, ctx.scale), None


pool.register_autograd(_backward, setup_context=_save)
