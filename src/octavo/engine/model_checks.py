"""Checks of request parameters that depend on the model: its layers, its marks of thinking."""

from __future__ import annotations

from octavo.types.errors import RequestError
from octavo.types.sampling_extras import HiddenStatesParams
from octavo.types.sampling_params import SamplingParams


def check_hidden_states(params: HiddenStatesParams, num_layers: int) -> None:
    """Raises RequestError for a layer that the model has not, or that is named twice."""
    seen: set[int] = set()
    for layer in params.layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise RequestError(
                f"hidden_states.layers holds {layer}; this model has {num_layers} layers, so that "
                f"0 to {num_layers}, or -1 to {-num_layers - 1}, are possible",
                "hidden_states.layers",
            )
        seen.add(layer % (num_layers + 1))
    if len(seen) < len(params.layers):
        raise RequestError("hidden_states.layers names a layer twice", "hidden_states.layers")


def check_thinking(params: SamplingParams, *, grammar_holds_thinking: bool) -> None:
    """Raises RequestError for a thinking_token_budget that can't be kept."""
    marks = params.thinking_marks
    if marks is None or not marks.ends:
        raise RequestError(
            "thinking_token_budget: it is not known how this model marks its thinking; name it by "
            "--reasoning-parser, or leave the budget out",
            "thinking_token_budget",
        )
    if params.structured_outputs is not None and grammar_holds_thinking:
        raise RequestError(
            "thinking_token_budget can't end thinking that is held to a grammar; leave out one of "
            "them, or start the server without enable_in_reasoning",
            "thinking_token_budget",
        )
