"""docs/models.md: octavo's own classes, and what the Transformers backend makes of other models.

python tools/models_page.py          # run every architecture and write the page
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from octavo.config.architectures import TRANSFORMERS_MODEL  # noqa: E402
from octavo.models.registry import MODELS, model_class  # noqa: E402
from support.transformers_models import ARCHITECTURES, class_name, outcome  # noqa: E402

INTRO = """# Models

`--model` takes a folder, a GGUF file or a Hugging Face id; the first name under `architectures` in
its config.json decides who computes it: octavo's own class, or where there is none the
Transformers backend (`--model-impl transformers` asks for the latter).

## Own classes

Each has the logits (float32, within 1e-4) and greedy tokens of transformers on tiny random weights,
prompts at once, in chunks and mixed with others (`tests/models/test_parity.py`). Models with
biases by distance (ALiBi: BLOOM, MPT) run on CPUs, and on GPUs with
`--attention-backend torch_sdpa --enforce-eager`.

| architecture | |
|---|---|
"""
BACKEND = """
## Through the Transformers backend

transformers' model with octavo's attention, KV cache, scheduler, linear layers and sampler. It must
let its attention be replaced (`_supports_attention_backend`), call it once per layer, and keep keys
and values of one shape in all layers. It runs without CUDA graphs unless their sizes are given
(`--cudagraph-capture-sizes`): its code may wait for the device. `python tools/models_page.py` ran
these with tiny random weights: 100 greedy tokens of three prompts together, in chunks of 16, equal
transformers' own.

| model_type | architecture | |
|---|---|---|
"""


def own_rows() -> list[str]:
    """A line per class of octavo."""
    names = [name for name in MODELS.names() if name != TRANSFORMERS_MODEL]
    return [f"| {name} | {_sentence(model_class(name).__doc__)} |" for name in sorted(names)]


def backend_rows(outcomes: dict[str, str]) -> list[str]:
    """A line per architecture tried."""
    return [
        f"| {name} | {class_name(name)} | {text.replace('|', ' ')} |"
        for name, text in sorted(outcomes.items())
    ]


def page(outcomes: dict[str, str]) -> str:
    """The whole text."""
    rows = "\n".join(own_rows())
    return INTRO + rows + "\n" + BACKEND + "\n".join(backend_rows(outcomes)) + "\n"


def _sentence(doc: str | None) -> str:
    return " ".join((doc or "").split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page({name: outcome(name) for name in ARCHITECTURES}), encoding="utf-8")
