"""The sampling kernels in Triton's interpreter against the reference and the oracle."""

from __future__ import annotations

import random

import pytest
import torch

from support.interpreter import require_interpreter

require_interpreter()
cases = pytest.importorskip("support.draw_cases", exc_type=ImportError)
from octavo.kernels import topk_topp  # noqa: E402
from octavo.kernels.reference import sampling as reference  # noqa: E402
from octavo.kernels.triton_set import triton_sampling  # noqa: E402
from support.sampling_oracle import sample_row  # noqa: E402
from support.sampling_requests import Driver, Sequence, make_state, random_params  # noqa: E402

HALF, FLOAT = torch.float16, torch.float32


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 1), (4, 9001), (7, 4096)])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_greedy(num_rows, num_tokens, dtype):
    cases.check_greedy(num_rows, num_tokens, dtype, "cpu")


@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize(
    ("num_rows", "num_tokens", "dtype"),
    [(2, 1, FLOAT), (16, 40, HALF), (16, 129, FLOAT), (16, 5003, FLOAT), (4, 12289, HALF)],
)
def test_draws_are_the_reference_s(num_rows, num_tokens, dtype, edits):
    cases.check_draw(num_rows, num_tokens, dtype, "cpu", edits=edits)


def test_rows_too_flat_for_a_short_list_are_read_whole(monkeypatch):
    whole = []
    draw_whole = topk_topp._draw_whole
    monkeypatch.setattr(
        topk_topp, "_draw_whole", lambda *args: (whole.append(args), draw_whole(*args))[1]
    )
    num_tokens = 4500
    tables = cases.random_tables(5, num_tokens)
    floats = tables.params.view(FLOAT)
    floats[:, cases.Word.TEMPERATURE] = 1.0
    floats[:, cases.Word.TOP_P] = torch.tensor([1.0, 0.2, 0.9, 0.5, 1.0])
    floats[:, cases.Word.LOG_MIN_P] = torch.tensor([0.0, 0.0, 1e-4, 0.0, 0.01]).log()
    tables.params[:, cases.Word.TOP_K] = torch.tensor([5, *[num_tokens] * 2, 1500, num_tokens])
    tables.params[:, cases.Word.KIND] = cases.Kind.TRUNCATED
    logits = torch.randn(5, num_tokens) / 2
    logits[0] = 1.0
    slots, positions = torch.arange(5), torch.arange(5)
    expected, _ = reference.draw(logits, slots, positions, tables, edits=False)
    actual, _ = cases.draw(logits, slots, positions, tables, edits=False)
    assert actual.tolist() == expected.tolist()
    assert len(whole) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(120))
def test_thousands_of_draws_are_the_reference_s(seed):
    torch.manual_seed(seed)
    num_tokens = (33, 500, 2777, 4097)[seed % 4]
    dtype = (FLOAT, HALF)[seed // 4 % 2]
    cases.check_draw(20, num_tokens, dtype, "cpu", edits=seed % 3 > 0)


def test_a_vocabulary_of_the_usual_size():
    cases.check_draw(2, 151936, FLOAT, "cpu", edits=False)


def test_slots_without_a_request():
    cases.check_padding(4500, "cpu")


def test_a_row_alone_and_among_others():
    cases.check_rows_alone(4, 4500, HALF, "cpu")


def test_penalties():
    cases.check_penalties(5, 4999, "cpu")


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 1), (16, 140), (2, 9001)])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_top_logprobs(num_rows, num_tokens, dtype):
    cases.check_top_logprobs(num_rows, num_tokens, dtype, "cpu")


def _run_beside_the_oracle(seed: int, count: int) -> None:
    """Requests with every parameter, over steps that leave counts and positions on the device."""
    rng = random.Random(seed)
    vocab = 40
    state = make_state(vocab, count + 8, max_model_len=32, kernels=triton_sampling())
    driver = Driver(state)
    for slot in range(count):
        prompt = [rng.randrange(8) for _ in range(rng.randint(1, 6))]
        outputs = [rng.randrange(6) for _ in range(rng.choice([0, 0, 1, 4]))]
        params = random_params(rng, vocab)
        if rng.random() < 0.8:  # so that most steps are draws in one piece
            params.bad_words_token_ids = [[rng.randrange(vocab)]]
        driver.add(slot, Sequence(params, prompt, rng.randrange(-(1 << 63), 1 << 63), outputs))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        slots = rng.sample(list(driver.live), max(count // 2, 1))
        logits = torch.randn(len(slots), vocab, generator=generator) * 3
        logits[:, :6] += 3
        expected = [
            sample_row(row, live.params, live.prompt, live.outputs, live.seed)
            for row, live in zip(logits.numpy(), (driver.live[slot] for slot in slots), strict=True)
        ]
        output = driver.step(slots, logits)
        assert output.nan_rows.tolist() == [row.dead for row in expected]
        assert output.token_ids.tolist() == [row.token for row in expected]


def test_beside_the_oracle():
    _run_beside_the_oracle(0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 30))
def test_long_beside_the_oracle(seed):
    _run_beside_the_oracle(seed, 40)
