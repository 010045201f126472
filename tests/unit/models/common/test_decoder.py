import torch
from torch import nn

from octavo.layers.attention import Attention
from octavo.layers.norm import RMSNorm
from octavo.models.common.decoder_layers import DecoderLayer
from octavo.models.interfaces import CausalLM
from octavo.models.llama import LlamaForCausalLM
from octavo.models.qwen3 import Qwen3ForCausalLM
from support.tiny_models import model_context


def attention_layers(model):
    return [module for module in model.modules() if isinstance(module, Attention)]


def test_is_a_causal_lm_with_the_caches_layer_names(tiny_files):
    model = LlamaForCausalLM(model_context(tiny_files))
    assert isinstance(model, CausalLM)
    names = [layer.name for layer in attention_layers(model)]
    assert names == [f"model.layers.{i}.self_attn.attn" for i in range(3)]


def test_one_rotary_table_for_all_layers(tiny_files):
    model = LlamaForCausalLM(model_context(tiny_files, max_model_len=77))
    tables = {id(layer.rotary.cos_sin) for layer in attention_layers(model)}
    assert len(tables) == 1
    assert attention_layers(model)[0].rotary.cos_sin.shape[0] == 77


def test_qwen3_has_norms_of_heads(tiny_files):
    context = model_context(tiny_files)
    names = set(Qwen3ForCausalLM(context).weight_map().targets)
    plain = set(LlamaForCausalLM(context).weight_map().targets)
    assert names - plain == {
        f"model.layers.{i}.self_attn.{norm}.weight"
        for i in range(3)
        for norm in ("q_norm", "k_norm")
    }


def test_layer_returns_what_is_yet_to_be_added(tiny_files):
    """norm(x + residual) follows every block, so sums and norms can run as one kernel."""

    class Add(nn.Module):
        def __init__(self, amount):
            super().__init__()
            self.amount = amount

        def forward(self, x, *_):
            return torch.full_like(x, self.amount)

    def build_norm(context):
        return RMSNorm(context, 72, 1e-5)

    layer = DecoderLayer(model_context(tiny_files), Add(2.0), Add(5.0), build_norm)
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        norm.weight.data.fill_(1.0)
    x, residual = layer(torch.zeros(1, 72), torch.ones(1, 72), None, None)
    assert (x == 5.0).all()
    assert (residual == 3.0).all()
