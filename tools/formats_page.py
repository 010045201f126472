"""docs/formats.md: what octavo reads and writes, from its own tables and the last families' test.

python tools/formats_page.py            # write the page
python tools/formats_page.py --check    # fail if it is not up to date
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "formats.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from octavo.checkpoints.gguf_codes import CODE_FORMS  # noqa: E402
from octavo.checkpoints.gguf_families import GGUF_FAMILIES  # noqa: E402
from octavo.checkpoints.gguf_file import BLOCK_TYPES  # noqa: E402
from octavo.checkpoints.pre_tokenizers import PRE_TOKENIZERS  # noqa: E402
from octavo.checkpoints.weight_files import FORMS  # noqa: E402
from support.gguf_families import FAMILIES, hf_config  # noqa: E402

INTRO = """# Formats and places

`--model` takes a folder, a `.gguf` file, a Hugging Face id (`owner/name`) or a URL. Whatever the
form, `octavo plan` reads headers only, and a start names every tensor that is missing, extra or of
another shape before it reads one. Nothing in a checkpoint is run unasked: pickles are interpreted
(see below), Python files are left alone without `--trust-remote-code`.

## Forms of weights

`--load-format auto` takes the first of these that a folder holds; the others ask for one. `dummy`
reads no weights. With an index, the files are those it names.

| `--load-format` | index, else one file, else all that match | |
|---|---|---|
"""
REMARKS = {
    "safetensors": "as transformers saves them",
    "sharded_state": "what `LLM.save_sharded_state(path)` writes: the parameters as a rank holds "
    "them, with configuration and tokenizer, of whatever form the model came in",
    "mistral": "names and row orders of Mistral's own code; with `params.json` "
    "(`--config-format mistral`; by itself where there is no config.json) and `tekken.json` or "
    "`tokenizer.model.v3`",
    "pt": "files of `torch.save`, the newer (zip) and the older kind",
}
PICKLES = """
### PyTorch files are read without unpickling

A pickle is a program. Octavo does not run it, and needs no torch for it: it follows the few opcodes
that plain tensors need, takes the names of tensor types from a table, and refuses the file by the
first name that is not in it (`its pickle names posix.system`). Offsets, shapes and strides are
checked against the file. The data are mapped, not copied.

### Tokenizers without a tokenizer.json

| file | what comes of it |
|---|---|
| `tekken.json` | Mistral's newer tokenizer, with the same ids |
| `tokenizer.model.v3`, of several the latest | Mistral's older one, read as the next |
| `tokenizer.model` | SentencePiece's BPE, the same ids; a unigram model is refused |

Where a folder of Mistral's files has no chat template, the tokenizer's version gives one (1, 2, 3
and 7 of SentencePiece; 3, 7, 11 and 13 of tekken): the tokens are those of mistral-common
(`tests/unit/checkpoints/test_tekken_template.py`), with tools from version 3 on and thinking in
version 13. Other versions need `--chat-template`.

### Python code that comes with a model

Some models bring their own classes (`auto_map` in config.json, files such as `modeling_x.py`). A
start without `--trust-remote-code` names the class that it would have to run, and ends. With it:

- The model's class runs through the [Transformers backend](models.md), so it must let its attention
  be replaced (`_supports_attention_backend`), as transformers 5 asks of its own. Code written for
  older versions often does not, and is refused with the reason.
- A tokenizer's class is run where there is no tokenizer.json, and made into one. One over the
  `tokenizers` package always can be; one in Python where transformers has a conversion for it, and
  only if the ids of some texts stay the same.
- Where octavo has a class of its own, or there is a tokenizer.json, no code is run, asked or not.

transformers copies the files to `HF_MODULES_CACHE` and imports them there. Read them before: they
may do all that you may. `octavo plan` runs the configuration's file alone. Of hubs and object
stores the Python files are fetched with the configuration; from a web folder they are not.

## GGUF

One file, or the first of a split model (`NAME-00001-of-0000N.gguf`). Configuration, tokenizer and
chat template come from its metadata.

### Architectures

The families marked with a star have been written by llama.cpp's own converter from small models,
and give back every weight and setting (`tests/unit/checkpoints/test_gguf_families.py`). `bert` is
also RoBERTa, XLM-RoBERTa and DistilBERT; such a file, and a generator's that has `pooling_type`,
makes embeddings as [embeddings.md](embeddings.md) says.

| general.architecture | becomes | |
|---|---|---|
"""
TYPES = """
### Element types

All of ggml's. Round trip: the largest error of rounding normally distributed numbers to the type
and reading them, relative to the largest number (by the gguf package {version}; empty where
it can't write the type). Packed: kept as codes on a CPU with `--quantization gguf`; otherwise
unpacked when they are read.

| type | weights per block | bytes per block | round trip | packed |
|---|---|---|---|---|
"""
TOKENIZERS = """
### Tokenizers

`tokenizer.ggml.model` is `gpt2` (byte-level BPE), `llama` (SentencePiece BPE with byte fallback),
`bert` (WordPiece) or `t5` (SentencePiece unigram, as XLM-RoBERTa has it). For `gpt2`,
`tokenizer.ggml.pre` names how texts are cut:

{names}.

## Places

| `--model` | what is fetched | where it is kept |
|---|---|---|
| `owner/name`, `owner/name:Q4_K_M`, `owner/name/file.gguf` | from the Hugging Face hub | its \
cache (`HF_HOME`), or `--download-dir` |
| the same, with `OCTAVO_USE_MODELSCOPE=1` | from ModelScope (`pip install modelscope-hub`) | its \
cache (`MODELSCOPE_CACHE`), or `--download-dir` |
| `s3://bucket/folder`, `gs://...`, `az://...`, `https://host/folder`, or the URL of a \
`.gguf` file | the needed files below it (`pip install obstore`) | `models` in \
`OCTAVO_CACHE_ROOT`, or `--download-dir` |

Of a repository or folder only configuration, tokenizer and the weights of one form are fetched.

- **Mirrors**: `HF_ENDPOINT` and `MODELSCOPE_ENDPOINT` name other servers of the same kind;
  `AWS_ENDPOINT_URL` one that speaks S3, `GOOGLE_BASE_URL` and `AZURE_STORAGE_ENDPOINT`
  (`http://host:10000/account`) ones that speak as Google's and Azure's do.
- **Credentials** come from the environment: `HF_TOKEN`, `MODELSCOPE_API_TOKEN`,
  `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_REGION`, `GOOGLE_APPLICATION_CREDENTIALS`,
  `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`; `AWS_SKIP_SIGNATURE=1`,
  `GOOGLE_SKIP_SIGNATURE=1` or `AZURE_SKIP_SIGNATURE=1` for a public bucket. Profiles of `~/.aws`
  are not read: `aws configure export-credentials --format env`.
- **Downloads from URLs** come in parallel pieces of 8 MiB, 8 at a time, which is all the memory
  they take. A piece that fails is asked for again; what came before a start was broken off is kept,
  and the next start goes on from there. At every start the tags of the remote files are compared:
  what changed is fetched again. If nobody answers, what is there is used, with a warning.
  Tested against moto (S3), Azurite (Azure) and fake-gcs-server (Google), behind a proxy that cuts
  answers short (`tests/unit/checkpoints/test_stores.py`).
- **Progress** of downloads and of loading shows on a terminal, and not elsewhere;
  `TQDM_DISABLE=1` turns it off there too.
- **Offline**: a local path never uses the network; `HF_HUB_OFFLINE=1` keeps hub ids to the cache.
"""


def form_rows() -> list[str]:
    """A line per form of a folder, in the order in which they are looked for."""
    rows = [
        f"| {form.kind} | "
        + ", ".join(f"`{name}`" for name in (form.index, form.single, *form.patterns) if name)
        + f" | {REMARKS[form.kind]} |"
        for form in FORMS
    ]
    rows.insert(2, "| gguf | `*.gguf` | see below |")
    return rows


def family_rows() -> list[str]:
    """A line per general.architecture."""
    converted = {hf_config(family)["architectures"][0] for family in FAMILIES}
    converted |= {"MptForCausalLM"}
    rows = []
    for arch, family in sorted(GGUF_FAMILIES.items()):
        star = "\\*" if family.architecture in converted else ""
        rows.append(f"| {arch} | {family.architecture} | {star} |")
    return rows


def type_rows() -> list[str]:
    """A line per ggml type."""
    values = np.random.default_rng(1).normal(size=(64, 512)).astype(np.float32)
    rows = []
    for name, block, nbytes in BLOCK_TYPES.values():
        packed = "yes" if name in CODE_FORMS else ""
        rows.append(f"| {name} | {block} | {nbytes} | {_round_trip(name, values)} | {packed} |")
    return rows


def _round_trip(name: str, values: np.ndarray) -> str:
    try:
        kind = gguf.GGMLQuantizationType[name]
        back = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    except (NotImplementedError, KeyError):
        return ""
    error = np.abs(back - values).max() / np.abs(values).max()
    return f"{error:.1e}" if error else "0"


def page() -> str:
    """The whole page."""
    names = ", ".join(f"`{name}`" for name in sorted(PRE_TOKENIZERS))
    version = ".".join(gguf_version().split(".")[:2])
    parts = [INTRO + "\n".join(form_rows()), PICKLES + "\n".join(family_rows())]
    parts += [TYPES.format(version=version) + "\n".join(type_rows())]
    return "\n".join([*parts, TOKENIZERS.format(names=names)])


def gguf_version() -> str:
    """Of the installed package."""
    return importlib.metadata.version("gguf")


def main() -> int:
    """Write or check."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} is not up to date; run python tools/formats_page.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
