"""Eager calls over every kind of input: layouts, sizes, dtypes, numbers, mutation."""

import ops
import pytest
import torch

LAYOUTS = {
    "contiguous": lambda: torch.arange(6.0).view(2, 3),
    "transposed": lambda: torch.arange(6.0).view(3, 2).t(),
    "every second column": lambda: torch.arange(12.0).view(2, 6)[:, ::2],
    "offset": lambda: torch.arange(7.0)[1:].view(2, 3),
    "expanded": lambda: torch.tensor([[1.5], [2.5]]).expand(2, 3),
    "odd stride of a size-1 dim": lambda: torch.arange(3.0).as_strided((1, 3), (1000, 1)),
    "overlapping windows": lambda: torch.arange(4.0).as_strided((2, 3), (1, 1)),
    "empty": lambda: torch.empty(0, 3),
    "lazily negated": lambda: torch._neg_view(torch.arange(6.0).view(2, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_values_of_torch(layout: str) -> None:
    x = LAYOUTS[layout]()
    y = ops.double(x)
    torch.testing.assert_close(y, 2 * x)
    assert y.stride() == torch.empty_like(x).stride()


def test_one_dimension_from_empty_to_offset() -> None:
    base = torch.arange(5.0)
    assert ops.double(base[1:4]).tolist() == [2.0, 4.0, 6.0]
    assert ops.double(torch.arange(4.0)).shape == (4,)
    assert ops.double(torch.empty(0)).shape == (0,)
    assert ops.double(base.flip(0)[::2]).tolist() == [8.0, 4.0, 0.0]


def test_a_sum_over_an_expanded_tensor_reads_one_element() -> None:
    assert ops.row_sum(torch.ones(1).expand(1, 1000)).tolist() == [1000.0]
    assert ops.row_sum(torch.empty(3, 0)).tolist() == [0.0, 0.0, 0.0]


def test_zero_dimensions_stay_zero_dimensions() -> None:
    y = ops.double(torch.tensor(1.5))
    assert y.shape == () and y.item() == 3.0
    x = torch.tensor([1.0, 2.0, 3.0])
    assert ops.select(x, torch.tensor(True)).tolist() == [1.0, 2.0, 3.0]
    assert ops.select(x, torch.tensor(False)).tolist() == [-1.0, -2.0, -3.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16, torch.float16])
def test_dtypes_are_kept(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 2.5, -3.0]).to(dtype)
    y = ops.double(x)
    assert y.dtype == dtype
    assert torch.equal(y, x + x)


def test_bool_stays_bool() -> None:
    y = ops.logical_not(torch.tensor([True, False]))
    assert y.dtype == torch.bool and y.tolist() == [False, True]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    ],
)
def test_the_float8_family(dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, 1.0, 2.0, 8.0])
    y = ops.cast(x.to(dtype), torch.float32)
    assert y.tolist() == x.tolist()


def test_unsigned_integers_that_torch_cannot_add() -> None:
    x = torch.tensor([1, 2, 40000], dtype=torch.uint16)
    assert ops.double(x).to(torch.int64).tolist() == [2, 4, 80000 - 65536]


def test_imaginary_part_of_a_conjugate() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    assert ops.double(x).tolist() == [-4.0, 8.0]


def test_numbers_lists_and_parameters_of_every_kind() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    y = ops.affine(x, 0.5, 2, [1, 2], [0.25])
    assert y.tolist() == [5.75, 7.75, 9.75]
    y = ops.affine(x, 0.5, 2, [], [0.25, 0.25], K=3, mode="sub", flip=True)
    assert y.tolist() == [-6.0, -12.0, -18.0]
    before = len(ops.affine.specializations)
    assert ops.affine(x, -1.0, -7, [1, 2, 3, 4], []).tolist() == [2.0, -5.0, -12.0]
    assert len(ops.affine.specializations) == before, "values of numbers and lists build nothing"


def test_an_operator_without_tensor_arguments() -> None:
    y = ops.fill_value(3, 2.5, torch.float64)
    assert y.dtype == torch.float64 and y.tolist() == [2.5, 2.5, 2.5]
    assert ops.fill_value(0, 1.0, torch.float64).shape == (0,)


def test_several_outputs() -> None:
    first, index = ops.two(torch.tensor([1.0, 2.0, 3.0]))
    assert first.tolist() == [2.0, 4.0, 6.0]
    assert index.tolist() == [0, 1, 2] and index.dtype == torch.int64


def test_output_sizes_that_depend_on_data() -> None:
    assert ops.positive(torch.tensor([1.0, -1.0, 2.0])).tolist() == [1.0, 2.0]
    assert ops.positive(torch.tensor([-1.0])).shape == (0,)


def test_a_write_reaches_strided_memory_and_bumps_the_version() -> None:
    base = torch.zeros(2, 4)
    for expected in (1, 2):
        before = base._version
        ops.plus_one_(base[:, ::2])
        assert base.tolist() == [[expected, 0, expected, 0]] * 2
        assert base._version == before + 1
    x = torch.arange(6.0).view(3, 2)
    ops.plus_one_(x.t())
    assert x.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_an_optional_mutated_argument() -> None:
    assert ops.add_into(torch.tensor([1.0])) is None
    out = torch.zeros(1)
    before = out._version
    ops.add_into(torch.tensor([1.0]), out)
    assert out.tolist() == [2.0] and out._version == before + 1
    strided = torch.zeros(4)
    ops.add_into(torch.tensor([1.0, 2.0]), strided[::2])
    assert strided.tolist() == [2.0, 0.0, 3.0, 0.0]


def test_a_write_to_repeated_memory_is_refused() -> None:
    x = torch.zeros(1)
    with pytest.raises(RuntimeError, match=r"plus_one_.* x is written.*share one place"):
        ops.plus_one_(x.expand(4))
    assert x.tolist() == [0.0]


def test_offsets_beyond_32_bits() -> None:
    storage = torch.zeros(2**31 + 1, dtype=torch.int8)
    storage[0], storage[2**31] = 7, 9
    x = storage.as_strided((2,), (2**31,))
    assert ops.double(x).tolist() == [14, 18]
    ops.plus_one_(x)
    assert [storage[i].item() for i in (0, 1, 2**31)] == [8, 0, 10]


def test_a_shape_never_seen_before_builds_nothing() -> None:
    ops.double(torch.ones(3))
    before = len(ops.double.specializations)
    for n in range(1, 40):
        assert ops.double(torch.full((n,), 1.5)).tolist() == [3.0] * n
    assert len(ops.double.specializations) == before


def test_precompile_builds_and_runs_nothing() -> None:
    what = ops.two.precompile(torch.empty(3, device="meta"))
    assert what == "tm_test::two(x: float32[1])"
    assert what in ops.two.specializations
