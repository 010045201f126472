"""TransformersForCausalLM: any decoder of transformers with octavo's attention and cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import BaseModelOutputWithPast

from octavo.attention.interface import AttentionContext
from octavo.layers.linear import ColumnParallelLinear, Linear, ReplicatedLinear, RowParallelLinear
from octavo.models.common.weights import Target, WeightMap, WeightTarget
from octavo.models.context import ModelContext
from octavo.models.transformers_attention import NAME, CurrentStep, attach
from octavo.models.transformers_code import causal_lm_class, read_config
from octavo.types.errors import ConfigError


class TransformersForCausalLM(nn.Module):
    """A causal language model of transformers, all tokens of a step as one row [1, T].

    Linear layers become octavo's, so that they run, divide and are stored as elsewhere. The
    decoder runs alone; logits come from the rest of transformers' class, which sees the hidden
    states as its decoder's result, so that caps and scales are its own.
    """

    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        causal = _build(context)
        _replace_linears(causal, context)
        causal.tie_weights()
        self._step = CurrentStep()
        self.attention = attach(causal, context, self._step)
        self._weights = _weight_map(causal)
        prefix = causal.base_model_prefix
        self.decoder: PreTrainedModel = getattr(causal, prefix)
        self._hidden = _GivenHidden()
        setattr(causal, prefix, self._hidden)
        self.head = causal

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T], positions[T] int64 -> hidden states [T, H] after the final norm."""
        hidden: torch.Tensor = self._decode(input_ids, positions, attn)[0]
        return hidden[0]

    def forward_with_states(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        attn: AttentionContext,
        layers: Sequence[int],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """See CausalLM."""
        out = self._decode(input_ids, positions, attn, output_hidden_states=True)
        return out[0][0], {layer: out.hidden_states[layer][0] for layer in layers}

    def _decode(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        attn: AttentionContext,
        **options: bool,
    ) -> Any:
        self._step.positions, self._step.context = positions, attn
        out = self.decoder(
            input_ids=input_ids[None].long(),
            position_ids=positions[None],
            use_cache=False,
            **options,
        )
        if not self._step.checked:
            self._check_calls()
        return out

    def _check_calls(self) -> None:
        """Each layer has one place in the cache; one that is not asked knows no past."""
        calls = self._step.calls
        for index in range(len(self.attention)):
            if calls[index] != 1:
                raise ConfigError(
                    f"layer {index} of {type(self.decoder).__name__} calls the attention function "
                    f"it was given {calls[index]} times, not once, so the Transformers backend "
                    "can't run it"
                )
        self._step.checked = True

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size]."""
        self._hidden.states = hidden[None]
        # The ids are not looked at: the decoder's place is taken by the hidden states.
        ids = torch.zeros(1, hidden.shape[0], dtype=torch.int64, device=hidden.device)
        logits: torch.Tensor = self.head(input_ids=ids, use_cache=False).logits
        return logits[0]

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors, in the names and forms that transformers saves."""
        return self._weights

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy tensors into their parameters."""
        return self._weights.load(weights)


class _Decoded(BaseModelOutputWithPast):
    """A decoder's result; what other models' decoders return besides is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _GivenHidden(nn.Module):
    """In the place of a decoder: returns the hidden states it was given."""

    states: torch.Tensor

    def forward(self, *args: Any, **kwargs: Any) -> _Decoded:
        """`states` as the decoder's result."""
        return _Decoded(last_hidden_state=cast("Any", self.states))

    @property
    def decoder(self) -> _GivenHidden:
        """Models whose decoder is one level deeper find the same there."""
        return self


class _TokenMixin:
    """Linear layers over [1, T, K], as transformers' modules call them."""

    weight: torch.Tensor | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[..., inputs] -> [..., outputs]."""
        out: torch.Tensor = super().forward(x.reshape(-1, x.shape[-1]))  # type: ignore[misc]
        return out.view(*x.shape[:-1], -1)

    def process_after_load(self) -> None:
        """Let a weight that is packed leave its dtype and device, which models look at."""
        before = self.weight
        super().process_after_load()  # type: ignore[misc]
        if self.weight is None and before is not None:
            del self.weight
            self.weight = before.new_empty(0)


class _Replicated(_TokenMixin, ReplicatedLinear):
    """See ReplicatedLinear."""


class _Column(_TokenMixin, ColumnParallelLinear):
    """See ColumnParallelLinear."""


class _Row(_TokenMixin, RowParallelLinear):
    """See RowParallelLinear."""


# What a TP plan says of a module. Embeddings, heads whose logits are gathered and norms of single
# heads are whole on every rank.
_STYLES: Mapping[str, type[_Replicated | _Column | _Row]] = {
    "colwise": _Column,
    "rowwise": _Row,
    "colwise_gather_output": _Replicated,
    "embedding_rowwise": _Replicated,
    "replicated_with_grad_allreduce": _Replicated,
}


def _build(context: ModelContext) -> PreTrainedModel:
    """transformers' model, its parameters not yet initialised."""
    config = read_config(context.hf_config, context.code)
    kind = causal_lm_class(config, context.hf_config, context.code)
    if kind is None or not getattr(kind, "_supports_attention_backend", False):
        raise ConfigError(
            f"{context.hf_config['architectures'][0]} of transformers is no causal language model "
            "that lets its attention be replaced, so the Transformers backend can't run it"
        )
    try:
        with torch.device(context.device), no_init_weights():
            model: PreTrainedModel = kind._from_config(  # type: ignore[no-untyped-call]
                config, dtype=context.dtype, attn_implementation=NAME
            )
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"transformers can't build {context.hf_config['architectures'][0]}: {error}"
        ) from error
    model.train(False)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def _replace_linears(model: PreTrainedModel, context: ModelContext) -> None:
    """Put octavo's layers in the places of nn.Linear, divided as the model's TP plan says."""
    plan = _tp_plan(model, context)
    for path, module in list(model.named_modules()):
        # One that the model keeps in a dtype of its own (a router, in float32) stays as it is.
        if type(module) is not nn.Linear or module.weight.dtype != context.dtype:
            continue
        kind = _STYLES.get(plan.get(re.sub(r"\.\d+(?=\.|$)", ".*", path), ""), _Replicated)
        bias = module.bias is not None
        new = kind(context.at(path), module.in_features, module.out_features, bias)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)


def _tp_plan(model: PreTrainedModel, context: ModelContext) -> Mapping[str, str]:
    ranks = context.group.size
    if ranks == 1:
        return {}
    plan: Mapping[str, str] = model.tp_plan or {}
    if not plan or set(plan.values()) - _STYLES.keys() or context.arch.num_kv_heads % ranks:
        raise ConfigError(
            f"{type(model).__name__} can't be divided among {ranks} ranks by the Transformers "
            "backend; set --tensor-parallel-size 1"
        )
    return plan


@dataclass(frozen=True, eq=False)
class _ViewTarget:
    """A checkpoint tensor that is a part of a parameter."""

    view: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """See Target."""
        return tuple(self.view.shape)

    def load(self, tensor: torch.Tensor) -> None:
        """See Target."""
        self.view.copy_(tensor)


@dataclass(frozen=True, eq=False)
class _TransformersWeights(WeightMap):
    """A WeightMap that knows which names transformers ignores, too."""

    patterns: tuple[str, ...] = ()

    def ignores(self, name: str) -> bool:
        """See WeightMap."""
        return super().ignores(name) or any(re.search(p, name) for p in self.patterns)


class _View(torch.Tensor):
    """A tensor of which transformers' conversions make views where they would make copies."""

    def contiguous(self, *args: Any, **kwargs: Any) -> _View:
        """The tensor itself."""
        return self


def _weight_map(model: PreTrainedModel) -> WeightMap:
    """What the model saves, each tensor with its place.

    transformers converts some tensors on their way to a file (experts, which it keeps together,
    are apart there). Converting views of the parameters instead says where each one belongs.
    """
    linears = {
        f"{path}.{param}": (module, param)
        for path, module in model.named_modules()
        if isinstance(module, Linear)
        for param, _ in module.named_parameters(recurse=False)
    }
    targets: dict[str, Target] = {}
    tied: set[str] = set()
    seen: set[tuple[int, torch.Size]] = set()
    views: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape)
        if place in seen and tensor.numel():
            tied.add(name)
            continue
        seen.add(place)
        if name in linears:
            module, param = linears[name]
            targets[name] = WeightTarget(module, param, 0, module.shard_shapes(param)[0])
        views[name] = tensor.as_subclass(_View)
    storages = {view.untyped_storage().data_ptr() for view in views.values()}
    saved = revert_weight_conversion(model, views)
    whole = {id(view): name for name, view in views.items()}
    found: dict[str, Target] = {}
    for name, view in saved.items():
        if view.untyped_storage().data_ptr() not in storages:
            raise ConfigError(
                f"{type(model).__name__}: transformers converts {name} in a way that the "
                "Transformers backend can't follow"
            )
        own = targets.get(whole.get(id(view), ""))
        found[name] = own or _ViewTarget(view.as_subclass(torch.Tensor))
    ignored = (
        *(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()),
        r"rotary_emb\.inv_freq$",
    )
    return _TransformersWeights(
        found, frozenset(tied), f"{model.base_model_prefix}.", (), tuple(map(str, ignored))
    )
