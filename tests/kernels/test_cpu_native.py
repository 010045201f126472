"""The C kernels against the references, independence of neighbours, and how they are built."""

import math
import platform
import shutil
import threading

import pytest
import torch

from octavo.kernels.cpu import library as library_module
from octavo.kernels.cpu.kernels import NativeKernels, NativeLinear, cpu_kernels
from octavo.kernels.cpu.library import NativeUnavailable, build, load, native_library
from octavo.kernels.cpu.sampling import native_greedy
from octavo.kernels.reference import elementwise, sampling
from octavo.types.errors import ConfigError

compiles = pytest.mark.skipif(
    shutil.which("gcc") is None and shutil.which("cc") is None, reason="no C compiler"
)
ROWS = [1, 2, 5, 6, 7, 11, 12, 13, 24, 25, 64, 97, 300]
SHAPES = [(1, 1), (37, 53), (31, 8), (64, 128), (960, 576), (100, 1536), (33, 5000)]


MACHINES = ["native", "x86-64-v3"] if platform.machine() == "x86_64" else ["native"]


@pytest.fixture(scope="module", params=MACHINES)
def library(request, tmp_path_factory):
    """This machine's vectors, and those of one with AVX2 only."""
    flags = [f.replace("=native", f"={request.param}") for f in library_module._FLAGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "_FLAGS", tuple(flags))
        return load(build(tmp_path_factory.mktemp("native")))


@pytest.fixture(scope="module")
def kernels(library):
    return NativeKernels(library)


@compiles
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_linear(library, shape, bias):
    torch.manual_seed(0)
    weight, b = torch.randn(shape) * 0.1, torch.randn(shape[0]) if bias else None
    product = NativeLinear(library, weight, b)
    expected_bias = 0.0 if b is None else b.double()
    for rows in ROWS:
        x = torch.randn(rows, shape[1])
        before = x.clone()
        out = product(x)
        assert out.shape == (rows, shape[0])
        expected = x.double() @ weight.double().t() + expected_bias
        torch.testing.assert_close(out.double(), expected, atol=2e-4, rtol=1e-4)
        assert torch.equal(x, before)


@compiles
@pytest.mark.parametrize("shape", [(960, 576), (576, 1536), (37, 4096)])
def test_a_row_of_a_linear_does_not_depend_on_the_others(library, shape):
    torch.manual_seed(1)
    product = NativeLinear(library, torch.randn(shape) * 0.02, torch.randn(shape[0]))
    x = torch.randn(400, shape[1])
    together = product(x)
    for rows in ROWS:
        assert torch.equal(product(x[7 : 7 + rows]), together[7 : 7 + rows]), rows


@compiles
def test_linear_takes_strided_rows_and_none(library):
    weight, wide = torch.randn(12, 16), torch.randn(9, 40)
    product = NativeLinear(library, weight, None)
    part = wide[:, 3:19]
    torch.testing.assert_close(product(part), part @ weight.t(), atol=1e-5, rtol=1e-5)
    assert product(torch.randn(0, 16)).shape == (0, 12)


@compiles
def test_nan_stays_in_its_row(library):
    product = NativeLinear(library, torch.randn(40, 64), None)
    x = torch.randn(14, 64)
    clean = product(x)
    x[3, 10] = math.nan
    out = product(x)
    assert torch.isnan(out[3]).all()
    others = [row for row in range(14) if row != 3]
    assert torch.equal(out[others], clean[others])


@compiles
@pytest.mark.parametrize("shape", [(1, 1), (1, 576), (3, 17), (65, 130), (40, 4096)])
def test_norms(kernels, shape):
    torch.manual_seed(2)
    x, residual, weight = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    torch.testing.assert_close(
        kernels.rms_norm(x, weight, 1e-5), elementwise.rms_norm(x, weight, 1e-5)
    )
    expected, total = elementwise.fused_add_rms_norm(x, residual.clone(), weight, 1e-6)
    before = x.clone()
    normed, summed = kernels.fused_add_rms_norm(x, residual, weight, 1e-6)
    torch.testing.assert_close(normed, expected)
    assert torch.equal(summed, total)
    assert torch.equal(x, before)
    alone = kernels.rms_norm(summed[-1:].clone(), weight, 1e-6)
    assert torch.equal(alone, normed[-1:])


@compiles
@pytest.mark.parametrize(("rows", "inner"), [(1, 1), (5, 33), (64, 1536)])
def test_silu_and_mul(kernels, rows, inner):
    torch.manual_seed(3)
    x = torch.randn(rows, 2 * inner) * 10
    torch.testing.assert_close(
        kernels.silu_and_mul(x), elementwise.silu_and_mul(x), atol=1e-6, rtol=2e-6
    )


@compiles
def test_silu_of_extreme_gates(kernels):
    gates = torch.tensor([-1e4, -120.0, -90.0, -87.5, -20.0, 0.0, 20.0, 90.0, 1e4, math.inf] * 4)
    x = torch.cat([gates, torch.ones_like(gates)])[None]
    torch.testing.assert_close(
        kernels.silu_and_mul(x), elementwise.silu_and_mul(x), atol=1e-30, rtol=2e-6
    )


@compiles
@pytest.mark.parametrize("norms", ["none", "q", "both"])
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size", "rotary_dim", "num_tokens"),
    [(4, 2, 8, 8, 7), (9, 3, 64, 64, 40), (3, 1, 12, 6, 7), (2, 2, 96, 32, 7)],
)
def test_qk_norm_rope_cache(
    kernels, num_heads, num_kv_heads, head_size, rotary_dim, num_tokens, is_neox, norms
):
    torch.manual_seed(4)
    block_size, num_blocks, max_pos = 4, 12, 40
    qkv = torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_size)
    angles = torch.rand(max_pos, rotary_dim // 2) * 2 * math.pi
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=-1)
    positions = torch.randint(max_pos, (num_tokens,))
    slots = torch.randperm(num_blocks * block_size)[:num_tokens]
    slots[num_tokens // 2] = -1
    q_norm = None if norms == "none" else torch.rand(head_size) + 0.5
    k_norm = torch.rand(head_size) + 0.5 if norms == "both" else None
    caches, results = [], []
    for function in (elementwise.qk_norm_rope_cache, kernels.qk_norm_rope_cache):
        cache = torch.full((num_blocks, 3, 2, num_kv_heads, block_size, head_size), math.nan)
        results.append(
            function(
                qkv.clone(),
                q_norm,
                k_norm,
                1e-6,
                cos_sin,
                positions,
                slots,
                cache[:, 1],
                rotary_dim,
                is_neox,
            )
        )
        caches.append(cache)
    assert results[1].stride()[1:] == (head_size, 1)
    torch.testing.assert_close(results[1], results[0], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(caches[1], caches[0], atol=2e-6, rtol=1e-5, equal_nan=True)


def greedy_cases():
    torch.manual_seed(5)
    logits = torch.randn(12, 5000)
    logits[0, 4999] = logits[0, 4998] = 9.0
    logits[1, 0] = 9.0
    logits[2, 700] = logits[2, 2000] = logits[2, 4000] = 9.0
    logits[3] = -5.0
    logits[4] = -math.inf
    logits[5, 17] = math.nan
    logits[6, 4997] = math.nan
    logits[7, 4321] = math.inf
    logits[8, 3] = -math.inf
    logits[9, :4900] = -math.inf
    logits[10] = 0.0
    logits[10, 5] = -0.0
    return logits


@compiles
@pytest.mark.parametrize("vocab_size", [1, 7, 16, 1023, 4999, 5000])
def test_greedy(library, vocab_size):
    logits = greedy_cases()[:, :vocab_size]
    token_ids, bad = native_greedy(library)(logits)
    expected_ids, expected_bad = sampling.greedy_checked(logits)
    assert torch.equal(token_ids, expected_ids)
    assert torch.equal(bad, expected_bad)


@compiles
def test_greedy_of_other_layouts(library):
    greedy = native_greedy(library)
    logits = greedy_cases()
    for other in (logits.double(), logits.t().contiguous().t(), logits[:0]):
        expected = sampling.greedy_checked(other)
        assert all(map(torch.equal, greedy(other), expected))


@compiles
def test_other_types_go_to_pytorch(kernels):
    x, weight = torch.randn(3, 8, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)
    assert torch.equal(kernels.rms_norm(x, weight, 1e-6), elementwise.rms_norm(x, weight, 1e-6))
    assert torch.equal(kernels.silu_and_mul(x), elementwise.silu_and_mul(x))
    product = kernels.prepare_linear(torch.randn(4, 8, dtype=torch.bfloat16), None)
    assert product(x).dtype == torch.bfloat16


# How the library is built and chosen.


@pytest.fixture
def fresh_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path))
    monkeypatch.delenv("OCTAVO_CPU_KERNELS", raising=False)
    native_library.cache_clear()
    yield monkeypatch
    native_library.cache_clear()


def test_torch_can_be_asked_for(fresh_choice):
    fresh_choice.setenv("OCTAVO_CPU_KERNELS", "torch")
    assert native_library() is None
    assert cpu_kernels().name == "reference"


def test_without_a_compiler_pytorch_computes(fresh_choice, caplog):
    fresh_choice.setattr(library_module.shutil, "which", lambda name: None)
    assert cpu_kernels().name == "reference"
    assert "no C compiler" in caplog.text


def test_native_can_be_insisted_on(fresh_choice):
    fresh_choice.setenv("OCTAVO_CPU_KERNELS", "native")
    fresh_choice.setattr(library_module.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="no C compiler was found"):
        native_library()


def test_an_unknown_choice_is_an_error(fresh_choice):
    fresh_choice.setenv("OCTAVO_CPU_KERNELS", "fast")
    with pytest.raises(ConfigError, match=r"OCTAVO_CPU_KERNELS='fast'.*auto, native or torch"):
        native_library()


@compiles
def test_a_compiler_that_fails(fresh_choice, tmp_path):
    source = tmp_path / "broken.c"
    source.write_text("int f( { }")
    fresh_choice.setattr(library_module, "_SOURCE", source)
    with pytest.raises(NativeUnavailable, match=r"failed: .*broken\.c"):
        build(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@compiles
def test_a_folder_that_cannot_be_written(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(NativeUnavailable, match="can't be written"):
        build(in_the_way)


@compiles
def test_a_damaged_library_is_no_reason_to_die(fresh_choice, tmp_path):
    path = build(tmp_path / "native")
    path.write_bytes(b"not a library")
    assert native_library() is None


@compiles
def test_built_once_and_by_many(tmp_path):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(build(tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [paths[0].name]
    stamp = paths[0].stat().st_mtime_ns
    assert build(tmp_path).stat().st_mtime_ns == stamp
    assert load(paths[0]).octavo_lanes() in (8, 16)
