"""When a sequence ends: end-of-sequence tokens, stop tokens, loops, length limits."""

from __future__ import annotations

from octavo.core.request import Request
from octavo.types.engine_output import FinishReason


def check_stop(
    request: Request, token: int, *, loops: bool = False
) -> tuple[FinishReason, int | None] | None:
    """Whether `token`, just appended to the request, ends it: (reason, stop token) or None.

    `loops`: the outputs end with a loop, as the request's repetition_detection says.

    The order is fixed, because a token can meet several conditions:
    1. while fewer than `min_tokens` have been produced, no token stops the sequence;
    2. an end-of-sequence id, unless `ignore_eos`: STOP without a stop token;
    3. an id of `stop_token_ids`: STOP with that id;
    4. a loop: REPETITION;
    5. `max_tokens` or the model's length limit: LENGTH (whatever `min_tokens` asks).
    """
    params = request.sampling_params
    if request.num_output_tokens >= params.min_tokens:
        if token in request.stop_ids:
            is_eos = not params.ignore_eos and token in (params.eos_token_ids or ())
            return FinishReason.STOP, None if is_eos else token
        if loops:
            return FinishReason.REPETITION, None
    if request.num_tokens >= request.max_length:
        return FinishReason.LENGTH, None
    return None
