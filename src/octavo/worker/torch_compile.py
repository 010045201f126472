"""TorchCompiler: torch.compile around a model, with octavo's kernels and attention left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from octavo.attention.interface import AttentionContext
from octavo.config.runtime import CompilationMode
from octavo.kernels.op import KernelSet
from octavo.kernels.opaque import CallTable, opaque_kernels
from octavo.layers.attention import Attention
from octavo.models.common.weights import WeightMap
from octavo.models.interfaces import CausalLM
from octavo.types.errors import ConfigError
from octavo.worker.piecewise import PiecewiseBackend


class TorchCompiler:
    """Models are compiled when their first step of several tokens comes; see ModelCompiler.

    Raises ConfigError where a compiler of C++ is needed and isn't there.
    """

    def __init__(self, mode: CompilationMode, device_type: str) -> None:
        self._mode = mode
        self._table = CallTable()
        if device_type == "cpu":
            _require_cpp_compiler()

    def kernels(self, kernels: KernelSet) -> KernelSet:
        """`kernels` behind operators."""
        return opaque_kernels(kernels, self._table)

    def model(self, model: CausalLM) -> CausalLM:
        """`model` with its forward pass compiled."""
        compiled: Any = CompiledModel(model, self._mode, self._table)
        result: CausalLM = compiled
        return result


class CompiledModel(nn.Module):
    """A model whose forward pass is compiled, for every number of tokens at once.

    The step's attention context is no input of the compiled graph: attention is an operator that
    finds the context here.
    """

    packed_modules: Mapping[str, tuple[str, ...]]

    def __init__(self, model: CausalLM, mode: CompilationMode, table: CallTable) -> None:
        super().__init__()
        assert isinstance(model, nn.Module)
        self.packed_modules = model.packed_modules
        self._model: Any = model
        self._table = table
        self._step = _Step()
        self._compiled = _compile(self._forward, mode)
        self._is_compiled = False

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """See CausalLM."""
        self._step.context = attn
        with self._table.in_use():
            if self._is_compiled:
                return self._compiled(input_ids, positions)
            if input_ids.shape[0] < 2:
                # The tracer would take the 1 for a constant.
                return self._forward(input_ids, positions)
            return self._first(input_ids, positions)

    def forward_with_states(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        attn: AttentionContext,
        layers: Sequence[int],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """See CausalLM; not compiled."""
        self._step.context = attn
        with self._table.in_use():
            found: tuple[torch.Tensor, dict[int, torch.Tensor]] = self._model.forward_with_states(
                input_ids, positions, attn, layers
            )
            return found

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See CausalLM."""
        with self._table.in_use():
            logits: torch.Tensor = self._model.compute_logits(hidden)
            return logits

    def weight_map(self) -> WeightMap:
        """See CausalLM."""
        weights: WeightMap = self._model.weight_map()
        return weights

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """See CausalLM."""
        names: set[str] = self._model.load_weights(weights)
        return names

    def _forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._model(input_ids, positions, self._step.context)
        return hidden

    def _first(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        _make_attention_opaque(self._model, self._table, self._step)
        for tensor in (input_ids, positions):
            torch._dynamo.mark_dynamic(tensor, 0)
        try:
            hidden = self._compiled(input_ids, positions)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise ConfigError(
                f"torch.compile can't take {type(self._model).__name__}: {error}; leave out -O and "
                "the compilation mode"
            ) from error
        self._is_compiled = True
        return hidden


class _Step:
    """The attention context of the step that runs."""

    context: AttentionContext


class _OpaqueAttention(nn.Module):
    """An attention layer behind an operator; what it needs of the step is found when it runs."""

    def __init__(self, attention: Attention, table: CallTable, step: _Step) -> None:
        super().__init__()

        def call(qkv: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return attention.forward(qkv, positions, step.context)

        self._width = attention.params.num_heads * attention.params.head_size
        self._which = table.add(call)

    def forward(
        self, qkv: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """See Attention."""
        out: torch.Tensor = torch.ops.octavo.attention(qkv, positions, self._width, self._which)
        return out


def _make_attention_opaque(model: nn.Module, table: CallTable, step: _Step) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Attention):
                setattr(parent, name, _OpaqueAttention(child, table, step))


def _compile(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], mode: CompilationMode
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    if mode == "STOCK_TORCH_COMPILE":
        return torch.compile(function, fullgraph=True)
    backend = PiecewiseBackend() if mode == "VLLM_COMPILE" else "inductor"
    # Steps differ in nothing that the graph was specialized for, so that nothing need be checked.
    options: dict[str, Any] = {"guard_filter_fn": lambda guards: [False] * len(guards)}
    return torch.compile(function, fullgraph=True, backend=backend, options=options)


def _require_cpp_compiler() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise ConfigError(
            "torch.compile on a CPU needs a C++ compiler; install g++ or name one in the "
            "environment variable CXX, or leave out -O and the compilation mode"
        ) from error
