from dataclasses import dataclass, field

import torch

from octavo.attention.interface import (
    AttentionContext,
    AttentionParams,
    GroupStep,
    LayerCache,
)
from octavo.layers.attention import Attention
from octavo.layers.norm import RMSNorm
from octavo.layers.rotary import RopeSettings, RotaryEmbedding
from support.layer_context import layer_context

PARAMS = AttentionParams(scale=0.5, num_heads=2, num_kv_heads=1, head_size=4)


@dataclass
class Recorder:
    calls: list = field(default_factory=list)

    def forward(self, q, kv, metadata, params):
        self.calls.append((q.clone(), kv, metadata, params))
        return q.flatten(1)


def rotary():
    settings = RopeSettings(rotary_dim=4, theta=100.0, max_position_embeddings=16, max_model_len=16)
    return RotaryEmbedding(settings, torch.device("cpu"))


def test_uses_its_own_cache_and_its_groups_backend():
    layer = Attention(layer_context(prefix="model.layers.1.self_attn.attn"), PARAMS, rotary())
    cache = torch.zeros(3, 2, 2, 1, 4, 4)
    first, second = Recorder(), Recorder()
    step = AttentionContext(
        caches={
            "model.layers.0.self_attn.attn": LayerCache(cache[:, 0], 0),
            "model.layers.1.self_attn.attn": LayerCache(cache[:, 1], 1),
        },
        groups=[
            GroupStep(first, "a", torch.tensor([4, 5])),
            GroupStep(second, "b", torch.tensor([8, 9])),
        ],
    )
    qkv = torch.randn(2, 16)
    values = qkv[:, 12:].clone()
    out = layer(qkv, torch.tensor([0, 1]), step)
    assert out.shape == (2, 8)
    assert not first.calls
    ((_, kv, metadata, params),) = second.calls
    assert metadata == "b"
    assert params is PARAMS
    assert kv.data_ptr() == cache[:, 1].data_ptr()
    assert torch.equal(cache[2, 1, 1, 0, :2], values)  # slots 8 and 9 are block 2
    assert (cache[:, 0] == 0).all()


def test_norms_belong_to_the_caller():
    q_norm = RMSNorm(layer_context(), 4, 1e-6)
    k_norm = RMSNorm(layer_context(), 4, 1e-6)
    q_norm.weight.data.fill_(2.0)
    k_norm.weight.data.fill_(3.0)
    layer = Attention(layer_context(prefix="attn"), PARAMS, rotary(), q_norm, k_norm)
    assert not [name for name, _ in layer.named_parameters()]
    recorder, cache = Recorder(), torch.zeros(2, 2, 1, 4, 4)
    step = AttentionContext(
        {"attn": LayerCache(cache, 0)}, [GroupStep(recorder, None, torch.tensor([4]))]
    )
    layer(torch.randn(1, 16), torch.tensor([0]), step)
    q = recorder.calls[0][0]
    close = {"rtol": 1e-4, "atol": 0.0}  # eps takes its share of a small vector
    torch.testing.assert_close(q.square().mean(-1), torch.full((1, 2), 4.0), **close)
    torch.testing.assert_close(cache[1, 0, 0, 0].square().mean(), torch.tensor(9.0), **close)
