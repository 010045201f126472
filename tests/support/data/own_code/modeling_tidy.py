"""A decoder that transformers does not know; notes that it was run."""

import os
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_tidy import TidyConfig  # noqa: TID252
from .parts_tidy import half  # noqa: TID252

Path(os.environ["OWN_CODE_RAN"]).joinpath("modeling").touch()


class TidyAttention(nn.Module):
    """Queries, keys and values side by side; no rotation, positions are learned."""

    is_causal = True

    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.config = config
        self.head_dim = config.breadth // config.heads
        self.mix = nn.Linear(config.breadth, 3 * config.breadth)
        self.out = nn.Linear(config.breadth, config.breadth)

    def forward(self, states, **kwargs):
        batch, length, _ = states.shape
        parts = self.mix(states).view(batch, length, 3, self.config.heads, self.head_dim)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed, _ = attend(self, q, k, v, None, scaling=self.head_dim**-0.5, **kwargs)
        return self.out(mixed.reshape(batch, length, -1).contiguous())


class TidyLayer(nn.Module):
    """Half of what a layer says is added: no known model's class computes the same."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.attention = TidyAttention(config, layer_idx)
        self.norm = nn.LayerNorm(config.breadth)
        self.up = nn.Linear(config.breadth, 2 * config.breadth)
        self.down = nn.Linear(2 * config.breadth, config.breadth)

    def forward(self, states, **kwargs):
        states = states + half(self.attention(self.norm(states), **kwargs))
        return states + half(self.down(torch.relu(self.up(states))))


class TidyPreTrainedModel(PreTrainedModel):
    """What both classes share."""

    config_class = TidyConfig
    base_model_prefix = "body"
    _supports_attention_backend = True
    _supports_sdpa = True


class TidyModel(TidyPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.breadth)
        self.places = nn.Embedding(config.max_position_embeddings, config.breadth)
        self.layers = nn.ModuleList(TidyLayer(config, index) for index in range(config.depth))
        self.norm = nn.LayerNorm(config.breadth)
        self.post_init()

    def forward(self, input_ids=None, position_ids=None, **kwargs):
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1])[None]
        states = self.words(input_ids) + self.places(position_ids)
        for layer in self.layers:
            states = layer(states)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(states))


class TidyForCausalLM(TidyPreTrainedModel, GenerationMixin):
    """The decoder with its head."""

    def __init__(self, config):
        super().__init__(config)
        self.body = TidyModel(config)
        self.head = nn.Linear(config.breadth, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, position_ids=None, **kwargs):
        states = self.body(input_ids=input_ids, position_ids=position_ids).last_hidden_state
        return CausalLMOutputWithPast(logits=self.head(states))
