"""A tokenizer that exists as code alone; notes that it was run."""

import os
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

Path(os.environ["OWN_CODE_RAN"]).joinpath("tokenization").touch()


class TidyTokenizer(PreTrainedTokenizerFast):
    """Every letter is a token, the vocabulary is in letters.txt."""

    vocab_files_names = {"vocab_file": "letters.txt"}  # noqa: RUF012

    def __init__(self, vocab_file=None, **kwargs):
        letters = Path(vocab_file).read_text(encoding="utf-8").splitlines()
        words = {letter: number for number, letter in enumerate(["<unk>", "</s>", *letters])}
        backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        backend.decoder = decoders.Fuse()
        super().__init__(tokenizer_object=backend, unk_token="<unk>", **kwargs)
