"""PiecewiseBackend: a traced model cut at attention, its pieces compiled, equal ones only once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._inductor import standalone_compile
from torch.fx.passes.split_module import split_module

from octavo.utils.logging import get_logger

logger = get_logger(__name__)

# One process: a pool would outlive the start and hold a torch per worker.
_INDUCTOR = {"compile_threads": 1}


class _Piece(nn.Module):
    """Compiled code in the place of the module it was made of."""

    def __init__(self, code: Callable[..., Any]) -> None:
        super().__init__()
        self.code = code

    def forward(self, *args: Any) -> Any:
        """Results as the graph's module returns them."""
        return self.code(*args)


class PiecewiseBackend:
    """What torch.compile calls with the graph it traced.

    Attention runs between the pieces as it is. Layers that are alike leave equal pieces, up to the
    names of their inputs; the first one's code is used for all.
    """

    def __init__(self) -> None:
        self.num_pieces = 0
        self.num_compiled = 0

    def __call__(
        self, graph: fx.GraphModule, inputs: Sequence[Any], **_: Any
    ) -> Callable[..., Any]:
        """Cut and compile; the result takes the same inputs."""
        began = time.monotonic()
        pieces = _cut(graph)
        known: dict[str, _Piece] = {}
        for name, piece in list(pieces.named_children()):
            assert isinstance(piece, fx.GraphModule)
            if any(_is_attention(node) for node in piece.graph.nodes):
                continue
            text = _text(piece)
            if text not in known:
                known[text] = _Piece(_compiled(piece))
            setattr(pieces, name, known[text])
            self.num_pieces += 1
        self.num_compiled += len(known)
        logger.info(
            "compiled %d pieces of the model, %d of them different, in %.1f s",
            self.num_pieces,
            self.num_compiled,
            time.monotonic() - began,
        )
        return pieces


def _is_attention(node: fx.Node) -> bool:
    attention = torch.ops.octavo.attention
    return node.target in (attention, attention.default)


def _cut(graph: fx.GraphModule) -> fx.GraphModule:
    """Parts in the order written: what lies between two attentions, and each of them alone."""
    part_of: dict[fx.Node, int] = {}
    part = 0
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        alone = _is_attention(node)
        part += alone
        part_of[node] = part
        part += alone
    cut: fx.GraphModule = split_module(graph, graph, part_of.__getitem__, keep_original_order=True)
    return cut


def _compiled(piece: fx.GraphModule) -> Callable[..., Any]:
    inputs = [node.meta["example_value"] for node in piece.graph.find_nodes(op="placeholder")]
    code: Callable[..., Any] = standalone_compile(
        piece,
        inputs,
        dynamic_shapes="from_tracing_context",
        options={"config_patches": _INDUCTOR},
    )
    return code


def _text(piece: fx.GraphModule) -> str:
    """The piece as text that is equal for pieces that are: names are places, inputs their kind."""
    names = {node: f"%{place}" for place, node in enumerate(piece.graph.nodes)}
    lines = []
    for node, name in names.items():
        args, kwargs = fx.map_arg((node.args, node.kwargs), names.__getitem__)
        what = _kind(node.meta["example_value"]) if node.op == "placeholder" else node.target
        lines.append(f"{name} = {node.op} {what} {args} {kwargs}")
        if node.op in ("get_attr", "call_module"):
            lines.append(f"of module {id(piece)}")  # what it names is this module's own
    return "\n".join(lines)


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value}"
    return f"{value.dtype} {value.device} {tuple(value.shape)} {value.stride()}"
