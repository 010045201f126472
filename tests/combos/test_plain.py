"""The plain model itself, and whether the workload tests what it says."""

import pytest
import torch

from combos.requests import Work, greedy, ids
from octavo.types.sampling_params import SamplingParams

FAMILIES = ("llama", "qwen2", "qwen2-window", "qwen3", "mistral-window")
NEAR = 1e-4  # float32 logits in another order of summation differ by less than a tenth of it


@pytest.fixture(scope="module")
def llama(family):
    return family("llama")


@pytest.mark.parametrize("length", [1, 16, 47])
def test_greedy_is_that_of_transformers(llama, length):
    prompt = ids(length, length)
    made = llama.plain.answer(Work("", prompt, greedy(20, ignore_eos=True))).sequences[0]
    theirs = llama.plain.model.generate(
        torch.tensor([prompt]),
        do_sample=False,
        max_new_tokens=20,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert theirs[0, length:].tolist() == made.token_ids


@pytest.mark.parametrize("name", FAMILIES)
def test_no_choice_is_a_near_tie(family, name):
    """Else equality would depend on the machine's order of summation."""
    for answer in family(name).expected:
        for made in answer.sequences:
            assert min(made.gaps, default=1.0) > NEAR, answer.name


@pytest.mark.parametrize("name", FAMILIES)
def test_the_requests_end_in_every_way(family, name):
    answers = {answer.name: answer.sequences for answer in family(name).expected}
    (shown,), (hidden,) = answers["stop string shown"], answers["stop string"]
    assert hidden.finish_reason == shown.finish_reason == "stop"
    assert shown.text == hidden.text + shown.stop_reason
    (late,) = answers["stop string too early"]
    assert late.finish_reason == "length"
    assert hidden.stop_reason in late.text
    (stopped,), (barred,) = answers["stop token"], answers["stop token barred"]
    assert stopped.stop_reason == stopped.token_ids[-1]
    assert len(barred.token_ids) > 12
    assert stopped.stop_reason not in barred.token_ids[:12]
    (ended,) = answers["end after five"]
    assert ended.finish_reason == "stop"
    assert ended.stop_reason is None
    assert len(ended.token_ids) == 6
    assert answers["end shown"][0].text.endswith("</s>")
    assert set(answers["end ignored"][0].token_ids) == {1}
    assert answers["to the end of the model"][0].finish_reason == "length"
    assert answers["prompt scored"][0].token_ids == []


@pytest.mark.parametrize("name", FAMILIES)
def test_every_parameter_changes_what_comes_out(family, name):
    """A parameter that changed nothing would not be tested."""
    tiny = family(name)
    for work, answer in zip(tiny.works, tiny.expected, strict=True):
        params = work.params
        kept = {"temperature", "seed", "max_tokens", "n", "truncate_prompt_tokens"}
        plain = SamplingParams(**{key: getattr(params, key) for key in kept})
        silent = params.logprobs is not None or params.prompt_logprobs is not None
        if silent or params == plain or work.name == "stop string too early":
            continue
        free = tiny.plain.answer(Work(work.name, work.prompt, plain))
        outcome = [(made.token_ids, made.text) for made in answer.sequences]
        assert outcome != [(made.token_ids, made.text) for made in free.sequences], work.name
