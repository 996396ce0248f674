"""The table of elementwise operators: what each computes, as Mojo expressions.

`a`, `b` and `c` are the inputs, `n(0)`, `n(1)`, ... the numbers of the call, in the order of the schema. Halves are
computed in float32. An operator is named without its `out`: the schema says what its arguments are.
"""

from dataclasses import dataclass

ANY, FLOAT, INTEGER = "any", "float", "integer"  # dtypes in which it is computed
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        name: of the overload that has `out`.
        text: the expression.
        kind: the dtypes in which it is computed; integers become floating-point for FLOAT.
        inputs: how many tensors it takes.
        test: its result is bool.
        masked: its first input is bool whatever the others are.
        on_bool: the expression for bools, which are the bytes 0 and 1; empty if there is none.
    """

    name: str
    text: str
    kind: str = ANY
    inputs: int = 1
    test: bool = False
    masked: bool = False
    on_bool: str = ""

    def serves(self, dtype: str) -> bool:
        """Tell whether it is computed in a dtype."""
        if dtype == "bool":
            return bool(self.on_bool)
        return (
            dtype in _FLOATS
            if self.kind == FLOAT
            else dtype in _INTEGERS or (self.kind == ANY and dtype in _FLOATS)
        )


def _c(*names: str) -> list[Row]:
    return [Row(f"{n}.out", f'one_by_one["{n}"](a)', FLOAT) for n in names]


_COMPARE = {"eq": "eq", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}

ROWS = [
    # arithmetic
    Row("add.out", "a + n(0) * b", inputs=2, on_bool="n(0).eq(0).select(a, a | b)"),
    Row("sub.out", "a - n(0) * b", inputs=2),
    Row("mul.out", "a * b", inputs=2, on_bool="a & b"),
    Row("div.out", "a / b", FLOAT, 2),
    Row("floor_divide.out", 'pair_by_pair["div_floor"](a, b)', FLOAT, 2),
    Row("remainder.Tensor_out", 'pair_by_pair["remainder"](a, b)', FLOAT, 2),
    Row("fmod.Tensor_out", 'pair_by_pair["fmod"](a, b)', FLOAT, 2),
    Row("pow.Tensor_Tensor_out", "power_of(a, b)", FLOAT, 2),
    Row("atan2.out", 'pair_by_pair["atan2"](a, b)', FLOAT, 2),
    Row("hypot.out", 'pair_by_pair["hypot"](a, b)', FLOAT, 2),
    Row("copysign.out", 'pair_by_pair["copysign"](a, b)', FLOAT, 2),
    Row("fmax.out", 'pair_by_pair["fmax"](a, b)', FLOAT, 2),
    Row("fmin.out", 'pair_by_pair["fmin"](a, b)', FLOAT, 2),
    Row("xlogy.OutTensor", "b.eq(b).select(a.eq(0).select(zero, a * log(b)), b)", FLOAT, 2),
    Row("maximum.out", "greater(a, b)", inputs=2, on_bool="a | b"),
    Row("minimum.out", "smaller(a, b)", inputs=2, on_bool="a & b"),
    Row("addcmul.out", "a + n(0) * b * c", inputs=3),
    Row("addcdiv.out", "a + n(0) * b / c", FLOAT, 3),
    Row("lerp.Tensor_out", "lerped(a, b, c)", FLOAT, 3),
    Row("lerp.Scalar_out", "lerped(a, b, n(0))", FLOAT, 2),
    # one number
    Row("neg.out", "-a"),
    Row("abs.out", "abs(a)"),
    Row("sign.out", "a.gt(0).cast[A]() - a.lt(0).cast[A]()"),
    Row("sgn.out", "a.gt(0).cast[A]() - a.lt(0).cast[A]()"),
    Row("reciprocal.out", "1 / a", FLOAT),
    Row("sqrt.out", "sqrt(a)", FLOAT),
    Row("rsqrt.out", "1 / sqrt(a)", FLOAT),
    Row("exp.out", "exp_of(a)", FLOAT),
    Row("exp2.out", "exp2_of(a)", FLOAT),
    Row("expm1.out", "expm1(a)", FLOAT),
    Row("log.out", "log(a)", FLOAT),
    Row("log2.out", "log2(a)", FLOAT),
    Row("log10.out", "log10(a)", FLOAT),
    Row("log1p.out", "log1p(a)", FLOAT),
    Row("sin.out", "sin(a)", FLOAT),
    Row("cos.out", "cos(a)", FLOAT),
    Row("tanh.out", "tanh_of(a)", FLOAT),
    Row("erf.out", "erf(a)", FLOAT),
    Row("floor.out", "floor(a)", FLOAT),
    Row("ceil.out", "ceil(a)", FLOAT),
    Row("trunc.out", "trunc(a)", FLOAT),
    Row("round.out", "round_even(a)", FLOAT),
    Row("frac.out", "a - trunc(a)", FLOAT),
    Row(
        "atanh.out",
        "a.lt(0).select(zero - 0.5, zero + 0.5) * log1p(2 * abs(a) / (1 - abs(a)))",
        FLOAT,
    ),
    *_c("acos", "acosh", "asin", "asinh", "atan", "cosh", "sinh", "tan"),
    *_c("erfc", "erfinv", "lgamma", "digamma"),
    # activations and their gradients
    Row("sigmoid.out", "1 / (1 + exp_of(-a))", FLOAT),
    Row("silu.out", "a / (1 + exp_of(-a))", FLOAT),
    Row("mish.out", "a * tanh_of(log1p(exp_of(a)))", FLOAT),
    Row("elu.out", "a.gt(0).select(a * n(1), n(0) * n(1) * expm1(a * n(2)))", FLOAT),
    Row("leaky_relu.out", "a.gt(0).select(a, a * n(0))", FLOAT),
    Row("softplus.out", "(a * n(0)).gt(n(1)).select(a, log1p(exp_of(a * n(0))) / n(0))", FLOAT),
    Row("hardtanh.out", "smaller(greater(a, n(0)), n(1))"),
    Row("hardsigmoid.out", "smaller(greater(a + 3, zero), zero + 6) / 6", FLOAT),
    Row("hardswish.out", "a * smaller(greater(a + 3, zero), zero + 6) / 6", FLOAT),
    Row("threshold.out", "a.le(n(0)).select(n(1), a)"),
    Row("sigmoid_backward.grad_input", "a * (1 - b) * b", FLOAT, 2),
    Row("tanh_backward.grad_input", "a * (1 - b * b)", FLOAT, 2),
    Row("threshold_backward.grad_input", "b.le(n(0)).select(zero, a)", inputs=2),
    Row("silu_backward.grad_input", "a * logistic(b) * (1 + b * (1 - logistic(b)))", FLOAT, 2),
    Row("leaky_relu_backward.grad_input", "b.gt(0).select(a, a * n(0))", FLOAT, 2),
    Row(
        "softplus_backward.grad_input",
        "(b * n(0)).gt(n(1)).select(a, a * logistic(b * n(0)))",
        FLOAT,
        2,
    ),
    Row("hardtanh_backward.grad_input", "(b.le(n(0)) | b.ge(n(1))).select(zero, a)", FLOAT, 2),
    Row("hardsigmoid_backward.grad_input", "(b.gt(-3) & b.lt(3)).select(a / 6, zero)", FLOAT, 2),
    # choices
    Row("clamp.out", "smaller(greater(a, n(0)), n(1))"),
    Row("clamp_min.out", "greater(a, n(0))"),
    Row("clamp_min.Tensor_out", "greater(a, b)", inputs=2),
    Row("clamp_max.Tensor_out", "smaller(a, b)", inputs=2),
    Row("clamp_max.out", "smaller(a, n(0))"),
    Row(
        "where.self_out",
        "(~a.eq(0)).select(b, c)",
        inputs=3,
        masked=True,
        on_bool="(~a.eq(0)).select(b, c)",
    ),
    # bits
    Row("bitwise_and.Tensor_out", "a & b", INTEGER, 2, on_bool="a & b"),
    Row("bitwise_or.Tensor_out", "a | b", INTEGER, 2, on_bool="a | b"),
    Row("bitwise_xor.Tensor_out", "a ^ b", INTEGER, 2, on_bool="a ^ b"),
    Row("bitwise_not.out", "~a", INTEGER, on_bool="a ^ 1"),
    # questions
    *(
        Row(f"{n}.Tensor_out", f"a.{f}(b)", inputs=2, test=True, on_bool=f"a.{f}(b)")
        for n, f in _COMPARE.items()
    ),
    *(
        Row(f"{n}.Scalar_out", f"a.{f}(n(0))", test=True, on_bool=f"a.{f}(n(0))")
        for n, f in _COMPARE.items()
    ),
    Row("ne.Tensor_out", "~a.eq(b)", inputs=2, test=True, on_bool="~a.eq(b)"),
    Row("ne.Scalar_out", "~a.eq(n(0))", test=True, on_bool="~a.eq(n(0))"),
    Row("isneginf.out", "a.eq(SIMD[A, w](Scalar[A].MIN))", FLOAT, test=True),
    Row("isposinf.out", "a.eq(SIMD[A, w](Scalar[A].MAX))", FLOAT, test=True),
    Row("logical_not.out", "a.eq(0)", test=True, on_bool="a.eq(0)"),
    Row(
        "logical_and.out", "~a.eq(0) & ~b.eq(0)", inputs=2, test=True, on_bool="~a.eq(0) & ~b.eq(0)"
    ),
    Row(
        "logical_or.out", "~a.eq(0) | ~b.eq(0)", inputs=2, test=True, on_bool="~a.eq(0) | ~b.eq(0)"
    ),
    Row(
        "logical_xor.out", "~a.eq(0) ^ ~b.eq(0)", inputs=2, test=True, on_bool="~a.eq(0) ^ ~b.eq(0)"
    ),
    # not of ATen: what others are made of
    Row("_copy", "a", on_bool="a"),
    Row("_fill", "n(0) + zero", inputs=0, on_bool="n(0) + zero"),
    Row("_relu", "greater(a, zero)"),
    Row("_gelu", "a * 0.5 * (1 + erf(a * 0.7071067811865476))", FLOAT),
    Row(
        "_gelu_tanh",
        "a * 0.5 * (1 + tanh_of(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
        FLOAT,
    ),
    Row("_gelu_backward", "a * gelu_slope(b)", FLOAT, 2),
    Row("_gelu_tanh_backward", "a * gelu_tanh_slope(b)", FLOAT, 2),
    Row("_square", "a * a"),
    Row("_isnan", "~a.eq(a)", test=True),
    Row(
        "_hardswish_backward",
        "b.lt(-3).select(zero, b.le(3).select(a * (b / 3 + 0.5), a))",
        FLOAT,
        2,
    ),
    Row("_pow_by", "raised(a, n(0))", FLOAT),
    Row("_power_of_number", "power_of[A, w](n(0), a)", FLOAT),
]
BY_NAME = {row.name: i for i, row in enumerate(ROWS)}
