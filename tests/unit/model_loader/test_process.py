import torch

from octavo.kernels.reference.gemm import prepare_linear
from octavo.model_loader.process import weight_bytes
from support.tiny_models import load_tiny, save_tiny


def test_linear_layers_are_ready(tiny_folder):
    model = load_tiny(tiny_folder)
    out = model.compute_logits(torch.randn(2, 72))
    assert out.shape == (2, 203)


def test_weight_bytes_count_every_weight_once(tiny_folder, tmp_path):
    hidden, inner, q, kv, layers, padded = 72, 96, 96, 32, 3, 256
    per_layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner + 2 * hidden
    table = 512 * 16
    plain = 4 * (layers * per_layer + 2 * padded * hidden + hidden + table)
    assert weight_bytes(load_tiny(tiny_folder)) == plain
    save_tiny("llama-tied", tmp_path / "tied")
    # A tied head is a copy where products run on repacked weights.
    packed_head = prepare_linear(torch.zeros(padded, hidden), None).nbytes
    tied = plain - 4 * padded * hidden + packed_head
    assert weight_bytes(load_tiny(tmp_path / "tied")) == tied
