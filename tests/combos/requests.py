"""The mixed requests that every combination of features serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer

from octavo.types.sampling_extras import RepetitionDetectionParams, ThinkingMarks
from octavo.types.sampling_params import SamplingParams

MAX_MODEL_LEN = 128
FOX = "the quick brown fox jumps over the lazy dog and the other foxes jump too "
COUNT = "Count: one two three four five six seven eight nine ten 0 1 2 3 4 5 6 7 8 9 "
MIXED = "der schnelle braune Fuchs springt über den faulen Hund, 你好世界 "


@dataclass(frozen=True)
class Work:
    """A request: its prompt, as text or as token ids, and its parameters."""

    name: str
    prompt: str | list[int]
    params: SamplingParams


def greedy(max_tokens: int | None = 20, **options) -> SamplingParams:
    """Parameters of a request that takes the likeliest token."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **options)


def seeded(seed: int, max_tokens: int = 20, **options) -> SamplingParams:
    """Parameters of a request that draws; the same seed draws the same."""
    return SamplingParams(seed=seed, max_tokens=max_tokens, **({"temperature": 1.0} | options))


def ids(length: int, start: int = 0) -> list[int]:
    """A prompt of `length` tokens without special ones, like no other `start`'s.

    The last is a whole character, so that the text that follows depends on the outputs alone.
    """
    tokens = [5 + (start * 101 + 37 * i + i * i) % 256 for i in range(length - 1)]
    return [*tokens, 5 + (start * 7 + length) % 90]


def workload(plain) -> list[Work]:
    """Every kind of request. Stop and bad words are taken from what `plain` says unhindered."""
    found = [
        # They grow side by side: where blocks are few, some are put back.
        *(Work(f"long output {i}", ids(3 + i, 60 + i), greedy(44)) for i in range(3)),
        *(Work(f"long output {i}, drawn", ids(3 + i, 60 + i), seeded(i, 44)) for i in range(4)),
        *(Work(f"greedy {n}", ids(n, n), greedy(40 - n // 4)) for n in (1, 15, 16, 17, 32, 47, 90)),
        *_shared_prefixes(),
        *_sampled(),
        *_penalized(),
        *_limited(plain),
        *_shaped(),
        *_scored(),
    ]
    assert len({work.name for work in found}) == len(found)
    return found


def _shared_prefixes() -> list[Work]:
    """A leader, followers that share all its blocks, some of them or all but one token."""
    common = ids(48, 7)
    return [
        Work("leader", common, greedy()),
        Work("leader again", common, greedy()),
        Work("leader, drawn", common, seeded(3)),
        Work("follower", common + ids(20, 1), greedy()),
        Work("other follower", common + ids(5, 2), seeded(4)),
        Work("follower of two blocks", common[:33] + ids(9, 3), greedy()),
        Work("follower of a part of a block", common[:8] + ids(30, 4), greedy()),
        Work("text leader", FOX + COUNT, greedy()),
        Work("text follower", FOX + MIXED, greedy()),
    ]


def _sampled() -> list[Work]:
    return [
        Work("drawn", FOX, seeded(11)),
        Work("drawn, hot", FOX, seeded(11, temperature=1.7)),
        Work("top_k", COUNT, seeded(12, top_k=5)),
        Work("top_p", COUNT, seeded(13, top_p=0.8)),
        Work("min_p", MIXED, seeded(14, min_p=0.05)),
        Work("all three", MIXED, seeded(15, top_k=30, top_p=0.9, min_p=0.01, temperature=1.3)),
        Work("three of a prompt", ids(20, 5), seeded(16, n=3)),
        Work("two greedy ones", ids(21, 5), greedy(n=2)),
    ]


def _penalized() -> list[Work]:
    few = {"allowed_token_ids": list(range(40, 70))}  # so that tokens come again
    return [
        Work("repetition", FOX, greedy(repetition_penalty=1.6)),
        Work("frequency", ids(30, 6), greedy(30, frequency_penalty=1.5, **few)),
        Work("presence", ids(31, 6), greedy(30, presence_penalty=1.8, **few)),
        Work(
            "all penalties, drawn",
            COUNT,
            seeded(
                17,
                30,
                repetition_penalty=1.2,
                frequency_penalty=0.7,
                presence_penalty=-0.4,
                top_p=0.95,
            ),
        ),
    ]


def _limited(plain) -> list[Work]:
    """Stops, barred and favoured tokens, lengths."""
    stops, stop = _prompt_with(plain, _text_across_tokens)
    tokens = plain.answer(Work("free", COUNT, greedy(24))).sequences[0].token_ids
    num_until_stop = len(
        plain.answer(Work("stopped", stops, greedy(24, stop=[stop]))).sequences[0].token_ids
    )
    bad, word = _prompt_with(plain, _word_of_two_tokens)
    bad_at_once, first_word = _prompt_with(plain, _first_word_of_two_tokens)
    return [
        Work("stop string", stops, greedy(24, stop=["never", stop])),
        Work("stop string shown", stops, greedy(24, stop=stop, include_stop_str_in_output=True)),
        Work("stop string too early", stops, greedy(24, stop=[stop], min_tokens=20)),
        Work(
            "stop string just in time", stops, greedy(24, stop=stop, min_tokens=num_until_stop - 1)
        ),
        Work("stop string just too early", stops, greedy(24, stop=stop, min_tokens=num_until_stop)),
        Work("stop token", COUNT, greedy(24, stop_token_ids=[tokens[6]])),
        Work(
            "stop token shown",
            COUNT,
            greedy(24, stop_token_ids=[tokens[6]], include_stop_str_in_output=True),
        ),
        Work("stop token barred", COUNT, greedy(24, stop_token_ids=[tokens[6]], min_tokens=12)),
        Work("bad word", bad, greedy(24, bad_words=[word])),
        Work("bad word at once", bad_at_once, greedy(6, bad_words=[first_word])),
        Work("bad words, drawn", bad, seeded(18, 24, bad_words=[word, "the", *"aeiou$%&"])),
        Work("end after five", FOX, greedy(24, logit_bias={1: 100.0}, min_tokens=5)),
        Work("end ignored", FOX, greedy(12, logit_bias={1: 100.0}, ignore_eos=True)),
        Work(
            "end shown",
            FOX,
            greedy(
                24,
                logit_bias={2: 100.0},
                min_tokens=3,
                skip_special_tokens=False,
                include_stop_str_in_output=True,
            ),
        ),
        Work("bias", COUNT, seeded(19, logit_bias={60: 8.0, 61: 9.0, 62: -100.0})),
        Work("allowed", COUNT, seeded(20, allowed_token_ids=[*range(70, 90), 330])),
        Work("to the end of the model", ids(100, 8), greedy(None, ignore_eos=True)),
        Work("one token", ids(33, 9), greedy(1)),
        Work("no text", ids(34, 9), greedy(8, detokenize=False)),
        Work("last of a long prompt", ids(90, 10), greedy(8, truncate_prompt_tokens=40)),
    ]


def _shaped() -> list[Work]:
    """The stages that few requests use, also where a text is long enough to be put back."""
    marks = ThinkingMarks([[60]], [[61, 62]], inside=True)
    loop = RepetitionDetectionParams(max_pattern_size=6, min_count=3)
    # Of few tokens, two of them breakers, repetitions are made.
    few = {"allowed_token_ids": [30, 40, 41, 6]}
    strong = few | {"dry_multiplier": 3.0}
    steep = few | {"dry_multiplier": 0.5, "dry_base": 8.0, "dry_allowed_length": 1}
    quick = {"mirostat_mode": 2, "mirostat_tau": 1.0, "mirostat_eta": 1.0, "temperature": 0.4}
    return [
        Work("dry", ids(9, 20) * 2, greedy(40, dry_multiplier=6.0, dry_allowed_length=1)),
        Work("dry, drawn", FOX, seeded(31, 44, **steep, temperature=0.7)),
        Work("dry, a window", ids(9, 20), seeded(43, 44, **steep, dry_penalty_last_n=4)),
        Work("dry, no breakers", COUNT, seeded(41, 30, **strong, dry_sequence_breakers=[])),
        Work("mirostat", ids(5, 21), seeded(32, 44, mirostat_mode=2, mirostat_tau=2.0)),
        Work(
            "mirostat, quick",
            ids(40, 22),
            seeded(33, 30, **quick),
        ),
        Work("mirostat 1", ids(6, 23), seeded(34, 30, mirostat_mode=1, mirostat_tau=1.5, n=2)),
        Work("typical", ids(7, 24), seeded(35, 20, typical_p=0.5, top_p=0.95)),
        Work("xtc", ids(7, 25), seeded(46, 20, xtc_probability=0.5, xtc_threshold=0.004, n=2)),
        Work("sigma", ids(7, 26), seeded(37, 20, top_n_sigma=1.5, temperature=1.8)),
        Work(
            "dynamic",
            ids(7, 27),
            seeded(38, 30, dynatemp_range=0.6, dynatemp_exponent=3.0, temperature=0.7),
        ),
        Work("budget", ids(8, 28), greedy(30, thinking_token_budget=7, thinking_marks=marks)),
        Work("no budget", ids(8, 29), seeded(39, 9, thinking_token_budget=0, thinking_marks=marks)),
        Work("loop", ids(8, 30), greedy(60, repetition_detection=loop, logit_bias={70: 30.0})),
    ]


def _scored() -> list[Work]:
    common = ids(48, 7)
    return [
        Work("logprobs of the token", FOX, greedy(12, logprobs=0)),
        Work("logprobs", ids(40, 11), seeded(21, 12, logprobs=5, top_k=20)),
        Work("logprobs up to a stop", COUNT, greedy(24, logprobs=2, stop_token_ids=[1])),
        Work("prompt scored", common + ids(30, 12), greedy(0, prompt_logprobs=3)),
        Work("prompt scored again", common + ids(30, 12), greedy(0, prompt_logprobs=0)),
        Work("prompt scored and more", common + ids(3, 13), greedy(8, prompt_logprobs=2)),
        Work("one token scored", ids(1, 14), greedy(3, prompt_logprobs=1, logprobs=1)),
    ]


def _prompt_with(
    plain, find: Callable[[Tokenizer, list[int]], str | None]
) -> tuple[list[int], str]:
    """A prompt whose greedy continuation holds what `find` looks for, and that."""
    for start in range(20, 120):
        prompt = ids(25, start)
        made = plain.answer(Work("free", prompt, greedy(24))).sequences[0]
        found = find(plain.tokenizer, made.token_ids)
        if found is not None:
            return prompt, found
    raise AssertionError(f"no continuation that {find.__name__} finds something in")


def _text_across_tokens(tokenizer: Tokenizer, tokens: list[int]) -> str | None:
    """Two characters that two tokens share, past the first ones."""
    for at in range(4, len(tokens) - 2):
        left, right = (tokenizer.decode([token]) for token in tokens[at : at + 2])
        shared = left[-1:] + right[:1]
        if len(shared) == 2 and shared.isalnum() and shared.isascii():
            return shared
    return None


def _word_of_two_tokens(
    tokenizer: Tokenizer, tokens: list[int], places: Iterable[int] = range(3, 22)
) -> str | None:
    """A word that is spelled with the two tokens at one of the places."""
    for at in places:
        word = tokenizer.decode(tokens[at : at + 2])
        if word.isalnum() and tokenizer.encode(word).ids == tokens[at : at + 2]:
            return word
    return None


def _first_word_of_two_tokens(tokenizer: Tokenizer, tokens: list[int]) -> str | None:
    return _word_of_two_tokens(tokenizer, tokens, [0])
