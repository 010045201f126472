"""Beam search offline: the beams of many prompts run together, a token at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tqdm import tqdm

from octavo.engine.beam_search import BeamSearch, end_tokens, step_params
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.prompts import Prompt, prompt_list
from octavo.entrypoints.pooling_methods import Progress
from octavo.types.beam_search import BeamSearchOutput, BeamSearchParams
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams

# Prompts as token ids and what each asks for -> a finished output per prompt.
Generate = Callable[[list[list[int]], SamplingParams], list[RequestOutput]]


def search_beams(
    engine: LLMEngine,
    generate: Generate,
    prompts: Prompt | Sequence[Prompt],
    params: BeamSearchParams,
    use_tqdm: Progress,
) -> list[BeamSearchOutput]:
    """The results for each prompt, in order. Raises RequestError and GenerationError."""
    tokenizer, model = engine.tokenizer, engine.config.model
    step = step_params(params, model.max_logprobs)
    ends = end_tokens(engine.config, tokenizer)
    searches = [
        BeamSearch(engine.tokenize(prompt), params, ends, model.max_model_len)
        for prompt in prompt_list(prompts)
    ]
    make_bar = use_tqdm if callable(use_tqdm) else tqdm
    with make_bar(total=len(searches), desc="prompts", disable=not use_tqdm) as bar:
        running = searches
        while running:
            inputs = [tokens for search in running for tokens in search.prompts()]
            outputs = iter(generate(inputs, step))
            for search in running:
                search.advance([next(outputs) for _ in search.live])
            num_before = len(running)
            running = [search for search in running if search.live]
            bar.update(num_before - len(running))
    return [
        BeamSearchOutput(search.prompt_token_ids, search.results(tokenizer, skip_special=True))
        for search in searches
    ]
