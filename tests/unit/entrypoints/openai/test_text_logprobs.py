"""Which tokens belong to which piece of an answer's text."""

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from octavo.entrypoints.openai.logprobs import LogprobsFormatter
from octavo.entrypoints.openai.text_logprobs import TextLogprobs
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.outputs import Logprob

WORDS = ("<think>", "</think>", "Look", "It", "Ġis", "Ċ", "ĊĊ", "th", "ink", "t", "Ċx", ">")


@pytest.fixture(scope="module")
def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(word for word in WORDS if word not in letters)]
    vocab = {token: i for i, token in enumerate(words)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|end|>", special=True)])
    return Tokenizer(backend)


@pytest.fixture
def texts(tokenizer):
    """texts(): an aligner of answers that think in tags."""
    formatter = LogprobsFormatter(tokenizer, 1, False)
    return lambda: TextLogprobs(tokenizer, formatter, ["<think>", "</think>", "<tool_call>"])


def ids_of(tokenizer, tokens):
    return [tokenizer.backend.token_to_id(token) for token in tokens]


def add(aligner, tokenizer, tokens):
    ids = ids_of(tokenizer, tokens)
    positions = [
        {id_: Logprob(-0.5 - i, 2, token), 0: Logprob(-0.1, 1, "!")}
        for i, (id_, token) in enumerate(zip(ids, tokens, strict=True))
    ]
    aligner.add(ids, positions)


def shown(entries):
    return [entry.token for entry in entries]


def test_a_whole_answer(texts, tokenizer):
    aligner = texts()
    tokens = ["<think>", "Ċ", "Look", "Ċ", "</think>", "ĊĊ", "It", "Ġis", "<|end|>"]
    add(aligner, tokenizer, tokens)
    assert shown(aligner.take("Look")) == ["Look"]
    entries = aligner.take("It is")
    assert shown(entries) == ["It", "Ġis"]
    assert [entry.logprob for entry in entries] == [-6.5, -7.5]
    assert [top.token for top in entries[0].top_logprobs] == ["!"]


@pytest.mark.parametrize("answer", ["t", "th", "ink", ">"])
def test_a_short_answer_is_not_found_in_the_marks(texts, tokenizer, answer):
    """Here </think> is spelled by many tokens, and no special token."""
    aligner = texts()
    tokens = ["Look", *"</", "th", "ink", ">", "Ċ", answer]
    add(aligner, tokenizer, tokens)
    aligner.take("Look")
    (entry,) = aligner.take(answer)
    assert entry.logprob == -0.5 - (len(tokens) - 1)


def test_pieces_come_as_they_are_cut(texts, tokenizer):
    aligner = texts()
    add(aligner, tokenizer, ["It", "Ġis"])
    assert shown(aligner.take("I")) == ["It"]
    assert shown(aligner.take("t i")) == ["Ġis"]
    add(aligner, tokenizer, ["t"])
    assert shown(aligner.take("st")) == ["t"]


def test_parts_of_characters_come_with_the_character(texts, tokenizer):
    aligner = texts()
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("東")[0][0]
    add(aligner, tokenizer, ["t", *pieces, "t"])
    assert len(aligner.take("t東")) == 4
    assert shown(aligner.take("t")) == ["t"]


def test_a_token_that_holds_syntax_and_text(texts, tokenizer):
    aligner = texts()
    add(aligner, tokenizer, ["</think>", "Ċx", "t"])
    assert shown(aligner.take("xt")) == ["Ċx", "t"]


def test_text_between_calls(texts, tokenizer):
    aligner = texts()
    call = [*"{t}<", "/", "t", ">"]
    add(aligner, tokenizer, ["It", "Ċ", *"<tool_call>", *call, "Ċ", "Look"])
    assert shown(aligner.take("It")) == ["It"]
    assert shown(aligner.take("Look")) == ["Look"]


def test_bytes_that_are_no_text_lose_nothing_of_what_follows(texts, tokenizer):
    aligner = texts()
    add(aligner, tokenizer, ["It", "Ń", "Look", "Ġis"])
    assert shown(aligner.take("It\ufffdL"))[:1] == ["It"]
    assert "Ġis" in shown(aligner.take("ook is"))
    assert aligner.take("nothing left") == []
