"""LLM on a tiny model: hidden states, beam search, loops and thinking budgets end to end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import transformers

from octavo import (
    LLM,
    BeamSearchParams,
    HiddenStatesParams,
    RepetitionDetectionParams,
    RequestOutput,
    SamplingParams,
)
from octavo.types.errors import RequestError
from octavo.types.sampling_extras import ThinkingMarks
from support.tiny_models import save_tiny

PROMPTS = [[5 + (7 * i + j * j) % 150 for j in range(length)] for i, length in enumerate((3, 37))]


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LLM, transformers.PreTrainedModel]]:
    folder = tmp_path_factory.mktemp("llama")
    model = save_tiny("llama", folder)
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        patch.setenv("OCTAVO_CPU_THREADS", "1")
        llm = LLM(
            str(folder),
            skip_tokenizer_init=True,
            max_model_len=128,
            max_num_seqs=6,
            max_num_batched_tokens=16,
            block_size=4,
            # Room for four of the requests below: others are put back and computed again.
            num_gpu_blocks_override=45,
        )
        yield llm, model
        llm.shutdown()
    torch.set_num_threads(threads)


def _generate(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


@torch.inference_mode()
def _theirs(model: transformers.PreTrainedModel, tokens: list[int]) -> np.ndarray:
    """[layers + 1, tokens, H]."""
    states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return torch.cat(states).float().numpy()


@pytest.mark.parametrize("positions", ["last", "prompt", "output", "all"])
def test_hidden_states_are_those_of_transformers(
    made: tuple[LLM, transformers.PreTrainedModel], positions: str
) -> None:
    """In chunks, side by side, from the prefix cache, and after being put back."""
    llm, model = made
    wanted = HiddenStatesParams(layers=[0, 1, -1], positions=positions)
    prompts = [*PROMPTS, *PROMPTS, *PROMPTS]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, hidden_states=wanted)
    for prompt, output in zip(prompts, _generate(llm, prompts, params), strict=True):
        made_states = output.outputs[0].hidden_states
        assert made_states is not None
        tokens = prompt + output.outputs[0].token_ids
        expected = _theirs(model, tokens[:-1])[[0, 1, -1]]
        start = {"last": len(prompt) - 1, "output": len(prompt)}.get(positions, 0)
        stop = len(prompt) if positions in ("last", "prompt") else len(tokens) - 1
        assert made_states.layers == [0, 1, -1]
        assert made_states.first_position == start
        np.testing.assert_allclose(made_states.states, expected[:, start:stop], atol=2e-4)


def test_hidden_states_change_no_token(made: tuple[LLM, transformers.PreTrainedModel]) -> None:
    llm, _ = made
    plain = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    shown = SamplingParams(
        temperature=0.0, max_tokens=20, ignore_eos=True, hidden_states=HiddenStatesParams()
    )
    mixed = llm.generate(PROMPTS * 2, [plain, plain, shown, shown], use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in mixed]
    assert tokens[:2] == tokens[2:]
    assert [output.outputs[0].hidden_states is None for output in mixed] == [True] * 2 + [False] * 2


def test_layers_that_are_not_there_are_refused(
    made: tuple[LLM, transformers.PreTrainedModel],
) -> None:
    llm, model = made
    layers = model.config.num_hidden_layers
    for wrong in ([layers + 1], [-layers - 2], [0, -layers - 1]):
        params = SamplingParams(hidden_states=HiddenStatesParams(layers=wrong))
        with pytest.raises(RequestError, match=r"hidden_states\.layers"):
            _generate(llm, PROMPTS, params)


@torch.inference_mode()
def _beams(
    model: transformers.PreTrainedModel, prompt: list[int], width: int, steps: int
) -> list[tuple[float, list[int]]]:
    """Beam search without ends, everything computed anew."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(steps):
        grown = []
        for total, tokens in beams:
            logits = model(torch.tensor([prompt + tokens])).logits[0, -1].float()
            top = logits.log_softmax(0).topk(2 * width)
            grown += [
                (total + value, [*tokens, token])
                for value, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            ]
        beams = sorted(grown, key=lambda beam: -beam[0])[:width]
    return beams


def test_beam_search_finds_what_a_plain_one_does(
    made: tuple[LLM, transformers.PreTrainedModel],
) -> None:
    llm, model = made
    params = BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True)
    found = llm.beam_search(PROMPTS, params)
    for prompt, output in zip(PROMPTS, found, strict=True):
        expected = _beams(model, prompt, 3, 6)
        assert output.prompt_token_ids == prompt
        assert [each.token_ids for each in output.sequences] == [tokens for _, tokens in expected]
        for each, (total, _) in zip(output.sequences, expected, strict=True):
            assert each.cumulative_logprob == pytest.approx(total, abs=1e-3)
    assert (
        found[1].sequences[0].token_ids
        == llm.beam_search(PROMPTS[1], params)[0].sequences[0].token_ids
    )


def test_a_loop_ends_the_text(made: tuple[LLM, transformers.PreTrainedModel]) -> None:
    llm, _ = made
    loop = RepetitionDetectionParams(max_pattern_size=3, min_pattern_size=2, min_count=4)
    params = SamplingParams(
        temperature=0.0, max_tokens=60, allowed_token_ids=[9], ignore_eos=True, min_tokens=3
    )
    (free,) = _generate(llm, PROMPTS[:1], params)
    params.repetition_detection = loop
    (ended,) = _generate(llm, PROMPTS[:1], params)
    assert (free.outputs[0].finish_reason, len(free.outputs[0].token_ids)) == ("length", 60)
    assert (ended.outputs[0].finish_reason, ended.outputs[0].token_ids) == ("repetition", [9] * 8)
    params.min_tokens = 20
    (late,) = _generate(llm, PROMPTS[:1], params)
    assert len(late.outputs[0].token_ids) == 20


def test_a_thinking_budget_needs_marks(made: tuple[LLM, transformers.PreTrainedModel]) -> None:
    llm, _ = made
    params = SamplingParams(temperature=0.0, max_tokens=8, thinking_token_budget=3)
    with pytest.raises(RequestError, match="reasoning-parser"):
        _generate(llm, PROMPTS[:1], params)
    params.thinking_marks = ThinkingMarks([[6]], [[7, 8]])
    (output,) = _generate(llm, [[5, 6]], params)
    assert output.outputs[0].token_ids[3:5] == [7, 8]
