"""What is admitted to be pooled, and what is refused with the field at fault."""

import dataclasses

import pytest

from octavo.config.pooler import PoolerConfig
from octavo.engine.pooling_inputs import PoolingInputs
from octavo.engine.pooling_tokens import PoolingPrompt
from octavo.types.errors import RequestError
from octavo.types.pooling_params import SECOND_TEXT, PoolingParams
from support.tiny import VOCAB_SIZE, fake_config

EMBED = PoolerConfig(head="embed", seq_pooling_type="LAST", embedding_size=8)
CLASSIFY = PoolerConfig(
    head="classify", seq_pooling_type="CLS", embedding_size=8, labels=("a", "b")
)


def inputs_of(pooler, *, is_encoder=False, **options):
    config = fake_config(**options)
    arch = dataclasses.replace(config.model.arch, is_encoder=is_encoder)
    model = dataclasses.replace(config.model, pooler=pooler, arch=arch)
    return PoolingInputs(dataclasses.replace(config, model=model), None)


def make(inputs, ids=(1, 2, 3), second_at=None, **params):
    prompt = PoolingPrompt(list(ids), second_at=second_at)
    return inputs.make_request("name", prompt, PoolingParams(**params))


def test_a_request_computes_its_prompt_and_no_token():
    inputs = inputs_of(EMBED)
    request, other = make(inputs), make(inputs)
    assert request.request_id != other.request_id
    assert request.request_id.endswith(":name")
    assert (request.token_ids, request.num_prompt_tokens, request.max_tokens) == ([1, 2, 3], 3, 0)
    assert request.pooling_params.task == "embed"
    assert not request.sampling_params.skip_reading_prefix_cache


@pytest.mark.parametrize(
    ("pooler", "params"),
    [
        (EMBED, {"task": "token_embed"}),
        (dataclasses.replace(EMBED, seq_pooling_type="MEAN"), {}),
        (CLASSIFY, {}),
    ],
)
def test_what_needs_every_state_finds_none_in_the_prefix_cache(pooler, params):
    request = make(inputs_of(pooler), **params)
    assert request.sampling_params.skip_reading_prefix_cache


def test_only_encoders_are_told_which_text_a_token_is_of():
    marked = make(inputs_of(CLASSIFY, is_encoder=True), second_at=1)
    assert marked.token_ids == [1, 2 | SECOND_TEXT, 3 | SECOND_TEXT]
    assert make(inputs_of(CLASSIFY), second_at=1).token_ids == [1, 2, 3]


@pytest.mark.parametrize(
    ("pooler", "ids", "params", "words", "param"),
    [
        (EMBED, (), {}, "no tokens", "prompt"),
        (EMBED, (1,) * 257, {}, "at most 256 fit", "prompt"),
        (EMBED, (VOCAB_SIZE,), {}, "outside", "prompt"),
        (EMBED, (-1,), {}, "outside", "prompt"),
        (EMBED, (1 | SECOND_TEXT,), {}, "outside", "prompt"),
        (EMBED, (1,), {"task": "classify"}, "it does embed and token_embed", "task"),
        (CLASSIFY, (1,), {"dimensions": 2}, "dimensions are for embeddings", "dimensions"),
        (EMBED, (1,), {"dimensions": 4}, "nothing of Matryoshka", "dimensions"),
        (EMBED, (1,), {"returned_token_ids": [0]}, "are for token_embed", "returned_token_ids"),
        (None, (1,), {}, "--runner pooling", None),
    ],
)
def test_faults_are_named(pooler, ids, params, words, param):
    with pytest.raises(RequestError, match=words) as caught:
        make(inputs_of(pooler), ids, **params)
    assert caught.value.param == param


def test_dimensions_of_a_model_that_was_trained_for_them():
    free = inputs_of(dataclasses.replace(EMBED, matryoshka=True))
    assert make(free, dimensions=3).pooling_params.dimensions == 3
    with pytest.raises(RequestError, match="above the 8"):
        make(free, dimensions=9)
    listed = inputs_of(dataclasses.replace(EMBED, matryoshka=True, matryoshka_dimensions=(2, 4)))
    assert make(listed, dimensions=4).pooling_params.dimensions == 4
    with pytest.raises(RequestError, match="none of 2, 4"):
        make(listed, dimensions=3)
    assert make(inputs_of(EMBED), dimensions=8).pooling_params.dimensions == 8


def test_parameters_are_checked_again():
    params = PoolingParams()
    params.use_activation = "yes"
    with pytest.raises(RequestError, match="pooling_params"):
        inputs_of(EMBED).make_request("name", PoolingPrompt([1]), params)
    with pytest.raises(RequestError, match="priority=1 needs"):
        inputs_of(EMBED).make_request("name", PoolingPrompt([1]), PoolingParams(), priority=1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"task": "x"}, "task"),
        ({"dimensions": 0}, "dimensions"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ],
)
def test_impossible_parameters(fields, param):
    with pytest.raises(RequestError) as caught:
        PoolingParams(**fields)
    assert caught.value.param == param
