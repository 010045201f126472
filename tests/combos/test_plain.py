"""The plain model itself, and whether the workload tests what it says."""

import msgspec
import pytest
import torch

from combos.requests import Work, greedy, ids
from octavo.types.sampling_params import SamplingParams

FAMILIES = [
    "llama",
    pytest.param("qwen2", marks=pytest.mark.slow),
    "qwen2-window",
    "qwen3",
    "mistral-window",
]
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
    assert answers["stop string just in time"][0] == hidden
    (later,) = answers["stop string just too early"]
    assert len(later.token_ids) > len(hidden.token_ids)
    (late,) = answers["stop string too early"]
    assert len(late.token_ids) > 20
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
def test_every_parameter_matters_to_some_request(family, name):
    """Without it alone, what comes out would be another: so an engine can't leave it out."""
    tiny = family(name)
    idle = {name for work in tiny.works for name in changed_parameters(work.params)}
    idle -= {"detokenize", "logprobs", "prompt_logprobs", "max_tokens", "temperature", "n", "seed"}
    assert len(idle) == 33
    for work, answer in zip(tiny.works, tiny.expected, strict=True):
        outcome = [(made.token_ids, made.text) for made in answer.sequences]
        for parameter in idle & changed_parameters(work.params):
            default = getattr(SamplingParams(), parameter)
            params = msgspec.structs.replace(work.params, **{parameter: default})
            without = tiny.plain.answer(Work(work.name, work.prompt, params))
            if outcome != [(made.token_ids, made.text) for made in without.sequences]:
                idle.remove(parameter)
    assert not idle


def changed_parameters(params):
    """Those that are not at their defaults."""
    default = SamplingParams()
    names = SamplingParams.__struct_fields__
    return {name for name in names if getattr(params, name) != getattr(default, name)}
