"""Packed weights: the C kernels against the references and float64, alone and in company."""

import ctypes
import platform
import shutil

import numpy as np
import pytest
import torch

from octavo.checkpoints.gguf_codes import CODE_FORMS
from octavo.checkpoints.group_codes import INT4, INT8
from octavo.kernels.cpu import library as library_module
from octavo.kernels.cpu import packed as packed_module
from octavo.kernels.cpu.library import build, load, native_library
from octavo.kernels.cpu.packed import NativePacked, packed_kernels
from octavo.kernels.invariant_cpu import invariant_packed
from octavo.kernels.reference.packed import TorchPacked, rounded
from octavo.layers.quantization.rounding import round_to_int4, round_to_int8
from octavo.types.errors import ConfigError
from support.codes import random_codes

X86 = platform.machine() == "x86_64"
needs_c = pytest.mark.skipif(
    not X86 or (shutil.which("gcc") is None and shutil.which("cc") is None),
    reason="packed.c needs a C compiler and AVX2",
)
# 512-bit vectors without VNNI, and 256-bit ones.
MACHINES = {"AVX-512": "-march=skylake-avx512", "AVX2": "-march=x86-64-v3"}
FORMS = [*CODE_FORMS, "int8", "int4"]


def make_codes(form, rows, inputs, seed=0):
    """(codes, weights as float64)."""
    if form in CODE_FORMS:
        codes, weights = random_codes(form, rows, inputs, seed)
        return codes, torch.from_numpy(weights).double()
    weight = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)) * 0.05
    codes = {"int8": round_to_int8, "int4": round_to_int4}[form](weight)
    part = TorchPacked().pack(codes)
    return codes, part.weights(slice(None)).double()


def kernels_of(machine, folder):
    flags = [MACHINES[machine] if f == "-march=native" else f for f in library_module._FLAGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "_FLAGS", tuple(flags))
        path = build(folder, packed_module._SOURCE)
    return NativePacked(load(path, packed_module._SIGNATURES))


@pytest.fixture(scope="module")
def native():
    kernels = packed_kernels()
    if not isinstance(kernels, NativePacked):
        pytest.skip("packed.c needs a C compiler and AVX2")
    return kernels


@pytest.fixture(scope="module", params=["C", "PyTorch"])
def kernels(request):
    if request.param == "PyTorch":
        return TorchPacked()
    return request.getfixturevalue("native")


@pytest.mark.parametrize("form", FORMS)
def test_lookup(kernels, form):
    codes, weights = make_codes(form, 37, 256)
    part = kernels.pack(codes)
    ids = torch.tensor([36, 0, 5, 5, 16, 15], dtype=torch.int32)
    found = kernels.lookup(part, ids).double()
    # C contracts scale * code + minimum, which is inexact only for scales of all 24 bits.
    tolerance = 1e-7 if form == "int4" else 0.0
    torch.testing.assert_close(found, weights[ids.long()], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_products(kernels, form, bias):
    """16-bit activations: within float32's own errors of exact ones."""
    torch.manual_seed(1)
    codes, weights = make_codes(form, 53, 512)
    b = torch.randn(53) if bias else None
    product = kernels.bind([(0, kernels.pack(codes))], b, 53)
    for rows in (1, 2, 3, 5, 8, 9, 31, 70):
        x = torch.randn(rows, 512)
        before = x.clone()
        out = product(x).double()
        exact = x.double() @ weights.t() + (0 if b is None else b.double())
        scale = (x.double().abs() @ weights.abs().t()).max()
        assert (out - exact).abs().max() <= 2e-5 * scale
        same = rounded(x).double() @ weights.t() + (0 if b is None else b.double())
        assert (out - same).abs().max() <= 1e-6 * scale, "what is left is float32's"
        assert torch.equal(x, before)


def test_parts_of_several_kinds(kernels):
    """As the fused q, k and v of a file that keeps v in more bits; gaps stay the caller's."""
    torch.manual_seed(2)
    made = [("Q4_K", 0, 40), ("Q4_K", 40, 24), ("Q6_K", 80, 19)]
    codes = [(first, *make_codes(form, rows, 256, rows)) for form, first, rows in made]
    bias = torch.randn(110)
    product = kernels.bind([(first, kernels.pack(c)) for first, c, _ in codes], bias, 110)
    x = torch.randn(13, 256)
    out = product(x).double()
    assert out.shape == (13, 110)
    for first, _, weights in codes:
        columns = slice(first, first + len(weights))
        expected = x.double() @ weights.t() + bias[columns].double()
        scale = (x.double().abs() @ weights.abs().t()).max()
        assert (out[:, columns] - expected).abs().max() <= 2e-5 * scale


def test_sizes(kernels):
    """Bytes are what the memory plan counts; without padding where there is none."""
    for form in FORMS:
        codes, _ = make_codes(form, 48, 256)
        assert kernels.pack(codes).nbytes == codes.form.num_bytes(48, 256)
        product = kernels.bind([(0, kernels.pack(codes))] * 2, None, 48)
        assert product.nbytes == 2 * codes.form.num_bytes(48, 256)
    assert INT8.num_bytes(16, 32) == 16 * (32 + 4)
    assert INT4.num_bytes(16, 32) == 16 * (16 + 8)


@needs_c
@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q8_0", "Q5_1", "Q6_K", "int4"])
def test_a_row_does_not_depend_on_its_neighbours(native, form):
    torch.manual_seed(3)
    codes, _ = make_codes(form, 70, 768)
    product = native.bind([(0, native.pack(codes))], torch.randn(70), 70)
    x = torch.randn(300, 768)
    alone = torch.cat([product(x[i : i + 1]) for i in range(300)])
    for begin, end in [(0, 300), (0, 2), (0, 7), (3, 8), (10, 74), (100, 233)]:
        assert torch.equal(product(x[begin:end]), alone[begin:end]), (begin, end)


@needs_c
@pytest.mark.parametrize("form", ["Q4_1", "Q6_K"])
def test_threads_change_nothing(native, form):
    codes, _ = make_codes(form, 70, 768)
    product = native.bind([(0, native.pack(codes))], None, 70)
    x = torch.randn(90, 768)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = product(x)
        torch.set_num_threads(3)
        assert torch.equal(product(x), one)
    finally:
        torch.set_num_threads(threads)


def test_numbers_that_are_not_finite_stay_in_their_row(kernels):
    codes, _ = make_codes("Q4_1", 20, 64)
    product = kernels.bind([(0, kernels.pack(codes))], None, 20)
    x = torch.randn(6, 64)
    clean = product(x)
    x[1, 3], x[2, 40], x[3] = float("nan"), float("inf"), 0.0
    out = product(x)
    assert out[1].isnan().all()
    assert not out[2].isfinite().any()
    torch.testing.assert_close(out[3], torch.zeros(20))
    torch.testing.assert_close(out[[0, 4, 5]], clean[[0, 4, 5]], atol=0, rtol=0)


def test_tiny_and_huge_activations(kernels):
    codes, weights = make_codes("Q8_0", 20, 64)
    product = kernels.bind([(0, kernels.pack(codes))], None, 20)
    for size in (1e-30, 1e30):
        x = torch.randn(2, 64) * size
        expected = (x.double() @ weights.t()).float()
        torch.testing.assert_close(product(x), expected, rtol=1e-3, atol=size * 1e-4)
    assert product(torch.full((1, 64), 1e-44)).isfinite().all()


def test_no_rows(kernels):
    codes, _ = make_codes("Q4_0", 20, 64)
    part = kernels.pack(codes)
    assert kernels.bind([(0, part)], None, 20)(torch.empty(0, 64)).shape == (0, 20)
    assert kernels.lookup(part, torch.empty(0, dtype=torch.int64)).shape == (0, 64)


@needs_c
@pytest.mark.parametrize("machine", ["AVX-512", "AVX2"])
def test_other_instructions_give_the_same_bits(native, machine, tmp_path):
    """Integers are exact and groups are added in one order, whatever the width of a vector."""
    if machine == "AVX-512" and "avx512bw" not in _cpu_flags():
        pytest.skip("this processor has no AVX-512")
    other = kernels_of(machine, tmp_path)
    assert other.name != native.name or "avx512_vnni" not in _cpu_flags()
    torch.manual_seed(4)
    for form in ("Q4_0", "Q4_1", "Q8_0", "Q5_1", "Q6_K"):
        codes, _ = make_codes(form, 45, 512)
        x, ids = torch.randn(21, 512), torch.arange(45)
        results = []
        for kernels in (native, other):
            part = kernels.pack(codes)
            results.append(kernels.bind([(0, part)], None, 45)(x))
            assert torch.equal(kernels.lookup(part, ids), native.lookup(native.pack(codes), ids))
        assert torch.equal(*results), form


def _cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next(line for line in info if line.startswith("flags")).split()


@pytest.fixture
def fresh_choice(monkeypatch, tmp_path):
    """The library is looked for again, before and after the test."""
    monkeypatch.setenv("OCTAVO_CACHE_ROOT", str(tmp_path))
    native_library.cache_clear()
    packed_kernels.cache_clear()
    yield monkeypatch
    native_library.cache_clear()
    packed_kernels.cache_clear()


def test_without_a_compiler_pytorch_computes(fresh_choice, caplog):
    fresh_choice.setattr(library_module.shutil, "which", lambda name: None)
    with caplog.at_level("INFO"):
        assert isinstance(packed_kernels(), TorchPacked)
    assert "packed weights: PyTorch's" in caplog.text
    with pytest.raises(ConfigError, match="leave out --batch-invariant or --quantization"):
        invariant_packed()


@needs_c
def test_where_packed_c_alone_cannot_be_compiled(fresh_choice, tmp_path, caplog):
    source = tmp_path / "packed.c"
    source.write_text('#error "packed weights need AVX2 and F16C"')
    fresh_choice.setattr(packed_module, "_SOURCE", source)
    assert isinstance(packed_kernels(), TorchPacked)
    assert "packed weights need AVX2" in caplog.text


def test_the_choice_is_printed(native, caplog):
    packed_kernels.cache_clear()
    with caplog.at_level("INFO"):
        kernels = packed_kernels()
    assert isinstance(kernels, NativePacked)
    assert f"packed weights: native, {kernels.name.split(', ')[1]}" in caplog.text
    assert packed_kernels() is kernels


@needs_c
def test_the_structure_of_a_part_is_that_of_c(native):
    codes, _ = make_codes("Q4_1", 33, 64)
    description = native.pack(codes).description
    assert ctypes.sizeof(description) == 40
    size = native._library.octavo_packed_bytes(ctypes.byref(description), 64)
    assert size == codes.form.num_bytes(33, 64)
    assert np.dtype(np.float16).itemsize == codes.form.number_bytes
