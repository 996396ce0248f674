"""Attention that never holds the matrix of weights: softmax(query . key * scale + mask) . value, and its gradients."""

import extensibility
from attention_cpu import backward_key_value, backward_query, forward
from attention_gpu import backward_on_gpu, forward_on_gpu
from attention_tiles import Grid, Problem, broadcast_grid_of, grid_of, wide_of
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext


@always_inline
def problem_of[
    has_mask: Bool, has_keep: Bool
](
    query: InputTensor,
    key: InputTensor[dtype=query.dtype, rank=4, ...],
    value: InputTensor[dtype=query.dtype, rank=4, ...],
    mask: InputTensor,
    keep: InputTensor,
    causal: Int64,
    scale: Float64,
    keep_scale: Float64,
) -> Problem[query.dtype, mask.dtype, has_mask, keep.dtype, has_keep]:
    comptime wide = wide_of[query.dtype]
    return {
        grid_of(query),
        grid_of(key),
        grid_of(value),
        broadcast_grid_of(mask),
        grid_of(keep),
        query.dim_size(0),
        query.dim_size(1),
        max(query.dim_size(1) // max(key.dim_size(1), 1), 1),
        query.dim_size(2),
        key.dim_size(2),
        query.dim_size(3),
        value.dim_size(3),
        causal != 0,
        scale.cast[wide](),
        keep_scale.cast[wide](),
    }


@extensibility.register("attention_forward")
struct AttentionForward[room: Int]:
    """Softmax over tiles of keys, with running maxima and sums (FlashAttention)."""

    @staticmethod
    def execute[
        target: StaticString, has_mask: Bool, has_keep: Bool
    ](
        output: OutputTensor[rank=4, ...],
        logsumexp: OutputTensor[dtype=wide_of[output.dtype], rank=3, ...],
        query: InputTensor[dtype=output.dtype, rank=4, ...],
        key: InputTensor[dtype=output.dtype, rank=4, ...],
        value: InputTensor[dtype=output.dtype, rank=4, ...],
        mask: InputTensor[rank=4, ...],
        keep: InputTensor[rank=4, ...],
        causal: Int64,
        scale: Float64,
        keep_scale: Float64,
        ctx: DeviceContext,
    ) raises:
        var p = problem_of[has_mask, has_keep](
            query, key, value, mask, keep, causal, scale, keep_scale
        )
        var levels = rebind[Grid[p.wide]](grid_of(logsumexp))
        var into = rebind[type_of(p.query)](grid_of(output))
        comptime if target == "cpu":
            forward(p, into, levels)
        else:
            forward_on_gpu[Self.room](p, into, levels, ctx)


@extensibility.register("attention_backward")
struct AttentionBackward[room: Int]:
    """The gradients, with the weights computed again from the logarithms of their sums."""

    @staticmethod
    def execute[
        target: StaticString, has_mask: Bool, has_keep: Bool
    ](
        grad_query: OutputTensor[rank=4, ...],
        grad_key: OutputTensor[dtype=grad_query.dtype, rank=4, ...],
        grad_value: OutputTensor[dtype=grad_query.dtype, rank=4, ...],
        delta: OutputTensor[dtype=wide_of[grad_query.dtype], rank=3, ...],
        grad: InputTensor[dtype=grad_query.dtype, rank=4, ...],
        query: InputTensor[dtype=grad_query.dtype, rank=4, ...],
        key: InputTensor[dtype=grad_query.dtype, rank=4, ...],
        value: InputTensor[dtype=grad_query.dtype, rank=4, ...],
        result: InputTensor[dtype=grad_query.dtype, rank=4, ...],
        logsumexp: InputTensor[dtype=wide_of[grad_query.dtype], rank=3, ...],
        mask: InputTensor[rank=4, ...],
        keep: InputTensor[rank=4, ...],
        causal: Int64,
        scale: Float64,
        keep_scale: Float64,
        ctx: DeviceContext,
    ) raises:
        var p = problem_of[has_mask, has_keep](
            query, key, value, mask, keep, causal, scale, keep_scale
        )
        comptime Rows = type_of(p.query)
        var levels = rebind[Grid[p.wide]](grid_of(logsumexp))
        var deltas = rebind[Grid[p.wide]](grid_of(delta))
        var incoming = rebind[Rows](grid_of(grad))
        var made = rebind[Rows](grid_of(result))
        var to_query = rebind[Rows](grid_of(grad_query))
        var to_key = rebind[Rows](grid_of(grad_key))
        var to_value = rebind[Rows](grid_of(grad_value))
        comptime if target == "cpu":
            backward_query(p, incoming, made, levels, to_query, deltas)
            backward_key_value(p, incoming, levels, deltas, to_key, to_value)
        else:
            backward_on_gpu[Self.room](
                p, incoming, made, levels, to_query, to_key, to_value, deltas, ctx
            )
