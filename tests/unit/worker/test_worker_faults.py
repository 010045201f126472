"""A request that fails in the worker ends alone; what it left behind harms nobody."""

import pytest
import torch

from octavo import LLM, SamplingParams
from octavo.sampling.processors import LogitsProcessor, PerRequestProcessor
from support.tiny_models import save_tiny

POISON = 200  # a token whose embedding is not a number
VOCAB = 203


class RaisesAtThree(PerRequestProcessor):
    """Fails when three tokens are out."""

    def new_request(self, params):
        if not (params.extra_args or {}).get("raise_at_three"):
            return None

        def edit(output_token_ids, logits):
            if len(output_token_ids) == 3:
                raise ZeroDivisionError("three")
            return logits

        return edit


class RaisesAtOnce(LogitsProcessor):
    """Can't take in a request that asks for it."""

    def add(self, slot, params, prompt_token_ids, output_token_ids):
        if (params.extra_args or {}).get("raise_at_once"):
            raise KeyError("no such thing")
        return False

    def remove(self, slot):
        raise AssertionError("it was never added")

    def apply(self, logits, rows):
        return logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("poisoned")
    model = save_tiny("llama", folder)
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON] = float("nan")
        model.lm_head.weight[POISON] = 0.0  # nobody chooses it without being told to
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[1, 2], ids=["1 step", "2 steps"])
def llm(request, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        patch.setenv("OCTAVO_CPU_THREADS", "1")
        threads = torch.get_num_threads()
        made = LLM(
            str(folder),
            skip_tokenizer_init=True,
            max_model_len=128,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            # Small, so that blocks of failed requests are used again at once.
            num_gpu_blocks_override=20,
            async_scheduling=request.param == 2,
            logits_processors=[f"{__name__}:RaisesAtThree", f"{__name__}:RaisesAtOnce"],
        )
    yield made
    made.shutdown()
    torch.set_num_threads(threads)


def prompt(length, start):
    return [3 + (37 * i + 11 * start + i * i) % 190 for i in range(length)]


def params(seed=None, **options):
    draws = {"temperature": 0.0} if seed is None else {"seed": seed, "top_k": 20}
    return SamplingParams(**({"max_tokens": 12, "ignore_eos": True} | draws | options))


NEIGHBOURS = [
    (prompt(40, 1), params()),
    (prompt(7, 2), params(5)),
    (prompt(23, 3), params(6, presence_penalty=1.0)),
]


def serve(llm, requests):
    prompts, sampling = zip(*requests, strict=True)
    return llm.generate(list(prompts), list(sampling), use_tqdm=False)


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def alone(llm):
    """The neighbours' tokens, each by itself."""
    found = [tokens(serve(llm, [request]))[0] for request in NEIGHBOURS]
    assert all(len(ids) == 12 and POISON not in ids for ids in found)
    return found


# What fails -> (its request, tokens it produces first, what its error says).
FAILURES = {
    "NaN in the prompt": (([*prompt(30, 4), POISON], params()), 0, "not a number"),
    "NaN at the start, long": (([POISON, *prompt(90, 4)], params(7)), 0, "not a number"),
    "NaN after the first token": (
        (prompt(20, 5), params(allowed_token_ids=[POISON])),
        1,
        "not a number",
    ),
    "drawn from NaN": ((prompt(20, 5), params(8, allowed_token_ids=[POISON])), 1, "not a number"),
    "a plug-in's function": (
        (prompt(9, 6), params(extra_args={"raise_at_three": True})),
        3,
        "RaisesAtThree failed: ZeroDivisionError: three",
    ),
    "a plug-in's add": (
        (prompt(9, 6), params(9, extra_args={"raise_at_once": True})),
        0,
        "no such thing",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("place", [0, 3])
def test_only_the_request_at_fault_ends(llm, alone, failure, place):
    request, num_tokens, message = FAILURES[failure]
    requests = NEIGHBOURS.copy()
    requests.insert(place, request)
    outputs = serve(llm, requests)
    failed = outputs.pop(place)
    assert message in failed.error
    assert failed.outputs[0].finish_reason == "error"
    assert len(failed.outputs[0].token_ids) == num_tokens
    assert tokens(outputs) == alone
    assert all(output.error is None for output in outputs)


def test_what_a_failed_request_computed_is_not_reused(llm, alone):
    """Its blocks are neither found by their hash nor harmful to their next owner."""
    del alone
    common = prompt(32, 7)
    good = (common + prompt(5, 8), params())
    assert llm.reset_prefix_cache()
    expected = tokens(serve(llm, [good]))
    assert llm.reset_prefix_cache()
    for _ in range(4):
        (failed,) = serve(llm, [([*common[:20], POISON, *common[20:]], params())])
        assert failed.error is not None
        assert tokens(serve(llm, [good])) == expected


def test_the_engine_goes_on_after_many_failures(llm, alone):
    failures = [request for request, _, _ in FAILURES.values()]
    outputs = serve(llm, failures * 3 + NEIGHBOURS)
    assert [output.outputs[0].finish_reason for output in outputs[:-3]] == ["error"] * 18
    assert tokens(outputs[-3:]) == alone
