"""ProcessorSet: batch plug-ins, their place in the order, and what their failures touch."""

from __future__ import annotations

import torch

from octavo.sampling.processors import LogitsProcessor
from octavo.sampling.sampler import Sampler
from octavo.types.errors import RequestError
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, draft_rows, make_state

VOCAB = 10


class Recorder(LogitsProcessor):
    """Adds `extra_args["add"]` to token 4 and notes what it was shown."""

    needs_history = True

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        super().__init__(vocab_size, device)
        self.amounts: dict[int, float] = {}
        self.removed: list[int] = []
        self.seen: list[tuple[list[int], torch.Tensor]] = []

    @classmethod
    def validate(cls, params):
        if (params.extra_args or {}).get("add") == "much":
            raise RequestError("add='much' is not a number", "extra_args")

    def add(self, slot, params, prompt_token_ids, output_token_ids):
        amount = (params.extra_args or {}).get("add")
        if amount is None:
            return False
        self.amounts[slot] = amount
        return True

    def remove(self, slot):
        del self.amounts[slot]
        self.removed.append(slot)

    def apply(self, logits, rows):
        self.seen.append((list(rows.slots), logits.clone()))
        for row, slot in enumerate(rows.slots):
            tokens = rows.token_ids[row, : rows.positions[row]].tolist()
            assert rows.output_token_ids(row) == tokens[2:]
            if self.amounts[slot] < 0:
                rows.fail(row, ValueError("negative"))
            else:
                logits[row, 4] += self.amounts[slot]
        return logits


class Invariant(Recorder):
    argmax_invariant = True


class Broken(Recorder):
    def apply(self, logits, rows):
        logits.fill_(torch.nan)
        raise ZeroDivisionError("oops")


def _params(add=None, **more) -> SamplingParams:
    more.setdefault("temperature", 0.0)
    return SamplingParams(extra_args=None if add is None else {"add": add}, **more)


def _driver(kind: type[LogitsProcessor], **options) -> tuple[Driver, Recorder]:
    driver = Driver(make_state(VOCAB, logits_processors=[kind], **options))
    return driver, driver.state.processors._processors[0]


def test_a_plug_in_gets_its_users_rows_only() -> None:
    driver, plugin = _driver(Recorder)
    for slot, add in enumerate((None, 2.0, None, 0.5)):
        driver.add(slot, Sequence(_params(add), [7, 7], 0))
    logits = torch.eye(VOCAB)[:4]
    output = driver.step([3, 2, 1, 0], logits)
    assert output.token_ids.tolist() == [0, 1, 4, 3]
    slots, shown = plugin.seen[0]
    assert slots == [3, 1]
    assert torch.equal(shown, logits[[0, 2]])
    driver.step([0, 2], logits[:2])
    assert len(plugin.seen) == 1


def test_it_runs_after_masks_and_before_penalties() -> None:
    driver, plugin = _driver(Recorder, logprobs_mode="processed_logits")
    params = _params(
        1.0, logit_bias={4: 2.0}, allowed_token_ids=[4, 5], repetition_penalty=2.0, logprobs=-1
    )
    driver.add(0, Sequence(params, [4, 4], 0))
    entry = driver.step([0], torch.ones(1, VOCAB)).logprobs.to_lists()[0]
    assert plugin.seen[0][1][0, 4] == 3.0
    assert plugin.seen[0][1][0, 0] == -torch.inf
    assert entry.logprobs[:3] == [2.0, 2.0, 1.0]  # (1 + 2 + 1) / 2


def test_an_argmax_invariant_one_sees_scaled_logits_and_no_greedy_rows() -> None:
    driver, plugin = _driver(Invariant)
    driver.add(0, Sequence(_params(0.0, temperature=0.5), [7, 7], 0))
    driver.add(1, Sequence(_params(0.0), [7, 7], 0))
    driver.step([1, 0], torch.ones(2, VOCAB))
    slots, shown = plugin.seen[0]
    assert slots == [0]
    assert shown.tolist() == [[2.0] * VOCAB]


def test_a_failing_batch_ends_its_users_and_no_others() -> None:
    driver, _ = _driver(Broken)
    for slot, add in enumerate((None, 1.0, None, 1.0)):
        driver.add(slot, Sequence(_params(add), [7, 7], 0))
    output = driver.step([0, 1, 2, 3], torch.eye(VOCAB)[:4])
    assert set(output.row_errors) == {1, 3}
    assert output.row_errors[1] == "logits processor Broken failed: ZeroDivisionError: oops"
    assert output.token_ids[[0, 2]].tolist() == [0, 2]


def test_a_plug_in_can_fail_single_rows() -> None:
    driver, _ = _driver(Recorder)
    driver.add(0, Sequence(_params(-1.0), [7, 7], 0))
    driver.add(1, Sequence(_params(3.0), [7, 7], 0))
    output = driver.step([1, 0], torch.eye(VOCAB)[:2])
    assert output.row_errors == {1: "logits processor Recorder failed: ValueError: negative"}
    assert output.token_ids[0] == 4


def test_refused_parameters_end_the_request() -> None:
    driver, plugin = _driver(Recorder)
    driver.add(0, Sequence(_params("much"), [7, 7], 0))
    output = driver.step([0], torch.eye(VOCAB)[:1])
    assert "add='much' is not a number" in output.row_errors[0]
    assert plugin.amounts == {}


def test_remove_is_told_to_users_only_and_may_fail() -> None:
    driver, plugin = _driver(Recorder)
    driver.add(0, Sequence(_params(1.0), [7, 7], 0))
    driver.add(1, Sequence(_params(), [7, 7], 0))
    driver.state.remove(1)
    driver.state.remove(0)
    assert plugin.removed == [0]
    driver.add(0, Sequence(_params(1.0), [7, 7], 0))
    plugin.amounts.clear()
    driver.state.remove(0)
    assert driver.state.processors.active == 0


def test_reading_tokens_needs_a_declaration() -> None:
    class Undeclared(Recorder):
        needs_history = False

    driver, _ = _driver(Undeclared)
    driver.add(0, Sequence(_params(1.0), [7, 7], 0))
    output = driver.step([0], torch.eye(VOCAB)[:1])
    assert "needs_history" in output.row_errors[0]
    assert driver.state.history.active == 0


def test_history_holds_the_drafts_before_each_row() -> None:
    """Recorder compares the device's tokens with the host's for every row."""
    driver, plugin = _driver(Recorder)
    state = driver.state
    for slot in range(3):
        state.add(slot, Sequence(_params(0.0), [7, 8], 0, outputs=[slot] * slot).as_new(slot))
    lengths = [2, 3, 4]
    accepted = [[True, True, False], [True], [True, False]]
    for _ in range(3):
        drafts = [(s, lengths[s], [5] * (len(accepted[s]) - 1)) for s in (2, 0, 1)]
        rows = draft_rows(drafts)
        state.flush()
        output = Sampler()(torch.randn(len(rows.slots_cpu), VOCAB), rows, state)
        assert output.row_errors == {}
        flags = torch.tensor(accepted[2] + accepted[0] + accepted[1])
        state.commit(rows, output.token_ids, flags)
        for slot in range(3):
            lengths[slot] += sum(accepted[slot])
    assert [slots for slots, _ in plugin.seen] == [[2, 2, 0, 0, 0, 1]] * 3
