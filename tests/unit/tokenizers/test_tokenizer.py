"""Tokenizer: encoding, decoding and special tokens of model folders."""

import json
import threading

import pytest
from tokenizers import processors

from octavo.checkpoints.locate import find_model
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer
from octavo.types.errors import CheckpointError, RequestError
from support.tiny_tokenizer import (
    CONFIG,
    SPECIALS,
    byte_fallback,
    byte_fallback_backend,
    byte_level,
    byte_level_backend,
    save_tokenizer,
)

TEXT = "the quick 你好 👩‍👩‍👧 1234 <|im_end|> é"


def folder_tokenizer(folder, backend=None, **config):
    (folder / "config.json").write_text("{}")
    save_tokenizer(folder, backend)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return load_tokenizer(find_model(str(folder)))


def with_bos(backend):
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return backend


def test_folder(tmp_path):
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode(TEXT), skip_special_tokens=False) == TEXT
    assert (tokenizer.bos_token, tokenizer.bos_token_id) == ("<s>", 1)
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("</s>", 2)
    assert tokenizer.all_special_ids == frozenset(range(len(SPECIALS)))
    assert tokenizer.vocab_size == 400
    assert tokenizer.max_token_id == 399
    assert tokenizer.chat_template == CONFIG["chat_template"]
    assert tokenizer.convert_ids_to_tokens([2, 4, 4000]) == ["</s>", "<|im_end|>", None]
    assert tokenizer.convert_tokens_to_ids(["</s>", "never"]) == [2, None]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
def test_token_bytes_join_to_the_text(tokenizer):
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    text = b"".join(map(tokenizer.token_bytes, ids)).decode()
    assert text == " " * tokenizer.strips_leading_space + TEXT.replace(
        "<|im_end|> ", "<|im_end|>" + " " * (1 + tokenizer.strips_leading_space)
    )
    for token_id in (10**6, -1, 1 << 40):
        assert tokenizer.token_bytes(token_id) == b""
        assert tokenizer.decode([token_id, ids[0]]) == tokenizer.decode(ids[:1])
        assert tokenizer.convert_ids_to_tokens([token_id]) == [None]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (1, 2)),
        ({"add_bos_token": False}, (None, 2)),
        ({"add_bos_token": True, "add_eos_token": False}, (1, None)),
    ],
)
def test_begin_and_end_tokens_of_the_post_processor(tmp_path, config, expected):
    tokenizer = folder_tokenizer(tmp_path, with_bos(byte_level_backend()), **config)
    plain = tokenizer.encode("hello", add_special_tokens=False)
    bos, eos = expected
    assert tokenizer.encode("hello") == [*([bos] if bos else []), *plain, *([eos] if eos else [])]


def test_flag_adds_what_the_post_processor_lacks(tmp_path):
    tokenizer = folder_tokenizer(tmp_path, add_bos_token=True)
    assert tokenizer.encode("hello")[0] == 1
    assert folder_tokenizer(tmp_path, add_bos_token=False).encode("hello")[0] != 1


def test_truncation_and_padding_of_the_file_are_off(tmp_path):
    backend = byte_level_backend()
    backend.enable_truncation(2)
    backend.enable_padding(length=64)
    tokenizer = folder_tokenizer(tmp_path, backend)
    assert tokenizer.decode(tokenizer.encode("hello there")) == "hello there"


def test_tokens_that_only_tokenizer_config_declares(tmp_path):
    declared = {"400": {"content": "<tool>", "special": False}, "2": {"content": "</s>"}}
    tokenizer = folder_tokenizer(tmp_path, added_tokens_decoder=declared)
    assert tokenizer.encode("a<tool>b")[1] == 400
    assert 400 not in tokenizer.all_special_ids


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"7": {"content": "<tool>"}}, "files are of two models"),
        ({"x": {"content": "<tool>"}}, "has the entry 'x'"),
        ({"400": {}}, "has the entry '400'"),
    ],
)
def test_declared_tokens_that_do_not_fit(tmp_path, declared, message):
    with pytest.raises(CheckpointError, match=message):
        folder_tokenizer(tmp_path, added_tokens_decoder=declared)


def test_further_special_tokens(tmp_path):
    tokens = byte_level_backend()
    first, second = (tokens.id_to_token(token_id) for token_id in (300, 301))
    tokenizer = folder_tokenizer(
        tmp_path,
        additional_special_tokens=[first, "never"],
        extra_special_tokens={"image": {"content": second}},
    )
    assert tokenizer.all_special_ids == frozenset([*range(len(SPECIALS)), 300, 301])
    assert tokenizer.vocab_size == 400


def test_named_token_becomes_special():
    backend = byte_level_backend()
    plain = backend.encode("the").ids
    tokenizer = Tokenizer(backend, {"eos_token": {"content": backend.id_to_token(plain[0])}})
    assert tokenizer.eos_token_id == plain[0]
    assert plain[0] in tokenizer.all_special_ids
    assert tokenizer.decode(plain) == tokenizer.decode(plain[1:])


def test_special_tokens_file_and_template_files(tmp_path):
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": {"content": "<unk>"}}')
    (tmp_path / "chat_template.json").write_text('{"chat_template": "json"}')
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.pad_token_id == 0
    assert tokenizer.chat_template == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("tools")
    assert load_tokenizer(find_model(str(tmp_path))).chat_templates == {
        "default": "jinja",
        "tool_use": "tools",
    }


def test_lone_surrogate_is_refused():
    with pytest.raises(RequestError, match="lone surrogate"):
        byte_level().encode("x \ud83d y")


def test_broken_and_missing_files(tmp_path):
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.vocab_size
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(CheckpointError, match="can't be read"):
        load_tokenizer(find_model(str(tmp_path)))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        load_tokenizer(find_model(str(tmp_path)))
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is no SentencePiece model"):
        load_tokenizer(find_model(str(tmp_path)))


def test_threads_share_a_tokenizer():
    tokenizer = Tokenizer(byte_fallback_backend(), dict(CONFIG))
    expected = tokenizer.encode(TEXT)
    wrong = []

    def work():
        for _ in range(200):
            ids = tokenizer.encode(TEXT)
            if ids != expected or not all(map(tokenizer.token_bytes, ids)):
                wrong.append(ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
