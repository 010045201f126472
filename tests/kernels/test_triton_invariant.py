"""The GEMM of batch-invariant mode: right, and the same sums in every tile."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.kernel_cases", exc_type=ImportError)
gemm = pytest.importorskip("octavo.kernels.invariant_gemm", exc_type=ImportError)
InvariantConfig = gemm.InvariantConfig

TILES = [
    InvariantConfig(16, 64, 64, 64, 4, 3),
    InvariantConfig(16, 64, 16, 64, 4, 3),
    InvariantConfig(64, 64, 32, 64, 4, 3),
    InvariantConfig(32, 128, 128, 64, 8, 3),
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("shape", "config", "bias"),
    [
        ((1, 70, 200), TILES[0], True),
        ((17, 70, 256), TILES[1], False),
        ((70, 130, 100), TILES[2], True),
        ((33, 128, 128), TILES[3], False),
        ((5, 200, 64), TILES[3], True),
        ((40, 1, 72), TILES[1], False),
    ],
)
def test_matches_reference(shape, config, bias, dtype):
    cases.check_invariant_gemm(shape, config, "cpu", dtype, bias=bias)


def test_no_rows():
    x, weight = torch.zeros(0, 64), torch.zeros(8, 64)
    assert gemm.invariant_gemm(x, weight, None, TILES[0]).shape == (0, 8)


def sums_that_tell_their_order(num_rows: int, num_out: int, inner: int) -> tuple:
    """x and weight whose sums are exact within 64 of K, and rounded when such blocks are added.

    A block's products are whole multiples of its own power of two, few enough for float32 to add
    them in any order; so what differs between two results is the order of blocks.
    """
    scale = torch.tensor([2.0 ** ((7 * block) % 12) for block in range(inner // 64)])
    x = torch.randint(-127, 128, (num_rows, inner)).float() * scale.repeat_interleave(64)
    weight = torch.randint(-31, 32, (num_out, inner)).float()
    return x, weight


def in_order(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Block after block of K, the definition."""
    acc = torch.zeros(x.shape[0], weight.shape[0])
    for at in range(0, x.shape[1], 64):
        acc += (x[:, at : at + 64].double() @ weight[:, at : at + 64].double().t()).float()
    return acc


def test_every_tile_adds_in_the_order_of_k():
    x, weight = sums_that_tell_their_order(20, 64, 64 * 12)
    expected = in_order(x, weight)
    other_order = in_order(x.flip(1), weight.flip(1))
    assert not torch.equal(expected, other_order), "the order must matter to this test"
    for config in TILES:
        assert torch.equal(gemm.invariant_gemm(x, weight, None, config), expected), config


def test_a_row_is_the_same_alone_and_among_others():
    x, weight = sums_that_tell_their_order(70, 64, 384)
    together = gemm.invariant_gemm(x, weight, None, TILES[3])
    for first, count in [(0, 1), (7, 16), (44, 26), (69, 1)]:
        part = x[first : first + count]
        for config in TILES[:3]:
            out = gemm.invariant_gemm(part, weight, None, config)
            assert torch.equal(out, together[first : first + count])


SHAPES = [(6144, 4096), (4096, 12288), (151936, 1024), (1024, 3072), (70, 100), (33, 72)]


@pytest.mark.parametrize(("num_out", "inner"), SHAPES)
def test_tiles_chosen_for_a_weight_agree(num_out, inner):
    """Where a block of K is not the same for all numbers of rows, every one divides K."""
    configs = [
        gemm.invariant_tile(rows, num_out, inner, 2, 132)
        for rows in (1, 2, 16, 17, 33, 64, 65, 100, 256, 1000, 8192)
    ]
    blocks = {config.block_k for config in configs}
    assert len(blocks) == 1 or all(inner % block == 0 for block in blocks)
    assert all(config.block_n >= 64 for config in configs), "the tall side of a wgmma"
    assert all(config.num_warps % 4 == 0 for config in configs)
    for config in configs:
        stage = (config.block_n + config.block_m) * config.block_k * 2
        assert stage * config.num_stages <= 227 << 10


def test_fp32_has_one_tile():
    few, many = (gemm.invariant_tile(rows, 4096, 256, 4, 132) for rows in (1, 5000))
    assert few == many


def test_narrow_weights_are_shared_by_more_programs():
    steps = [gemm.invariant_tile(1, n, 4096, 2, 132).step_n for n in (128, 4096, 24576)]
    assert steps == [16, 32, 64]


def test_linear_of_the_set():
    kernels = pytest.importorskip("octavo.kernels.triton_invariant", exc_type=ImportError)
    weight, bias = torch.randn(70, 96), torch.randn(70)
    linear = kernels.InvariantLinear(weight, bias, pdl=False)
    x = torch.randn(9, 200)[:, 4:100]
    torch.testing.assert_close(linear(x), F.linear(x, weight, bias), atol=1e-4, rtol=1e-4)
    assert linear.nbytes == 0


def test_pairs_of_tiles_agree_on_random_numbers():
    """What a GPU test shows for wgmma; the interpreter multiplies block by block with NumPy."""
    x, weight = torch.randn(20, 256).half(), torch.randn(64, 256).half()
    outs = [gemm.invariant_gemm(x, weight, None, config) for config in TILES]
    for first, second in itertools.pairwise(outs):
        torch.testing.assert_close(first, second, atol=2e-3, rtol=2e-3)
