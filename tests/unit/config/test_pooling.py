"""Which models pool, and how, by their config, their Sentence Transformers files and options."""

from __future__ import annotations

import pytest

from octavo.checkpoints.sentence_transformers import SentenceFiles, SentenceModule
from octavo.config.engine_options import EngineOptions
from octavo.config.pooler import PairTemplate, TokenScores
from octavo.config.pooling import pooling_architecture
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.errors import ConfigError

BERT = {
    "architectures": ["BertModel"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}


def config_of(platform, hf_config, sentence=None, token_ids=None, **options):
    facts = ModelFacts(hf_config=hf_config, sentence=sentence, token_ids=token_ids or {})
    return resolve(EngineOptions(**options), platform, facts=facts)


def sentence_files(pooling, *modules, **transformer):
    start = (SentenceModule("Transformer", ""), SentenceModule("Pooling", "1_Pooling", pooling))
    return SentenceFiles((*start, *modules), transformer)


@pytest.mark.parametrize(
    ("name", "options", "body", "head"),
    [
        ("BertModel", {}, "Bert", "embed"),
        ("BertForMaskedLM", {}, "Bert", "embed"),
        ("XLMRobertaForSequenceClassification", {}, "XLMRoberta", "classify"),
        ("DistilBertForTokenClassification", {}, "DistilBert", "token_classify"),
        ("Qwen3Model", {}, "Qwen3ForCausalLM", "embed"),
        ("Qwen3ForSequenceClassification", {}, "Qwen3ForCausalLM", "classify"),
        ("GPT2ForSequenceClassification", {}, "GPT2LMHeadModel", "classify"),
        ("Qwen3ForCausalLM", {"runner": "pooling"}, "Qwen3ForCausalLM", "embed"),
        ("Qwen3ForCausalLM", {"convert": "classify"}, "Qwen3ForCausalLM", "classify"),
        ("Qwen3ForCausalLM", {"has_sentence_files": True}, "Qwen3ForCausalLM", "embed"),
    ],
)
def test_architectures_that_pool(name, options, body, head):
    found = pooling_architecture({"architectures": [name]}, **options)
    assert (found.body, found.head) == (body, head)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Qwen3ForCausalLM", {}),
        ("Qwen3ForCausalLM", {"runner": "generate", "has_sentence_files": True}),
        ("MambaForCausalLM", {}),
    ],
)
def test_architectures_that_generate(name, options):
    assert pooling_architecture({"architectures": [name]}, **options) is None


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("BertModel", {"runner": "generate"}, "BertModel makes no text"),
        ("MambaForCausalLM", {"runner": "pooling"}, "names MambaForCausalLM"),
        ("Qwen3ForCausalLM", {"runner": "pooling", "convert": "none"}, "convert='none'"),
    ],
)
def test_what_can_not_be_run_as_asked(name, options, words):
    with pytest.raises(ConfigError, match=words):
        pooling_architecture({"architectures": [name]}, **options)


def test_an_encoder_computes_texts_whole_and_keeps_nothing(cpu):
    config = config_of(cpu, BERT, long_prefill_token_threshold=64)
    assert not config.scheduler.enable_chunked_prefill
    assert not config.cache.enable_prefix_caching
    assert config.scheduler.long_prefill_token_threshold == 0
    assert config.scheduler.max_num_batched_tokens >= config.model.max_model_len == 512
    pooler = config.model.pooler
    assert (pooler.seq_pooling_type, pooler.use_activation, pooler.tasks) == (
        "CLS",
        True,
        ("embed", "token_embed"),
    )
    assert "an encoder" in " ".join(config.notes)


def test_positions_behind_that_of_padding(cpu):
    roberta = BERT | {"architectures": ["RobertaModel"], "pad_token_id": 1}
    roberta["max_position_embeddings"] = 514
    assert config_of(cpu, roberta).model.max_model_len == 512


def test_sentence_files_decide(cpu):
    dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.Tanh"}
    sentence = sentence_files(
        {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        SentenceModule("Dense", "2_Dense", dense),
        max_seq_length=128,
        do_lower_case=True,
    )
    config = config_of(cpu, BERT, sentence)
    pooler = config.model.pooler
    assert pooler.seq_pooling_type == "MEAN"
    assert not pooler.use_activation  # there is no Normalize module
    assert pooler.embedding_size == 8
    assert pooler.dense[0].activation == "Tanh"
    assert pooler.lower_case
    assert config.model.max_model_len == 128
    assert config_of(cpu, BERT, sentence, max_model_len=300).model.max_model_len == 300
    normalized = sentence_files({"pooling_mode": "lasttoken"}, SentenceModule("Normalize", "2"))
    pooler = config_of(cpu, BERT, normalized).model.pooler
    assert (pooler.seq_pooling_type, pooler.use_activation) == ("LAST", True)


def test_options_go_before_the_files(cpu):
    sentence = sentence_files({"pooling_mode_mean_tokens": True})
    asked = {"pooling_type": "cls", "use_activation": True, "dimensions": 4}
    pooler = config_of(cpu, BERT, sentence, pooler_config=asked).model.pooler
    assert (pooler.seq_pooling_type, pooler.use_activation, pooler.dimensions) == ("CLS", True, 4)
    assert pooler.matryoshka


@pytest.mark.parametrize(
    ("pooling", "modules", "asked", "words"),
    [
        ({"pooling_mode_max_tokens": True}, [], {}, "asks for pooling_mode_max_tokens"),
        ({}, [], {}, "asks for nothing"),
        (
            {"pooling_mode_mean_tokens": True},
            [SentenceModule("CNN", "2_CNN")],
            {},
            "has a CNN module",
        ),
        ({"pooling_mode_mean_tokens": True}, [], {"pooling": "CLS"}, "did you mean pooling_type"),
        (
            {"pooling_mode_mean_tokens": True},
            [],
            {"use_activation": 1},
            "use_activation=1 in pooler_config: expected bool",
        ),
        ({"pooling_mode_mean_tokens": True}, [], {"pooling_type": "MAX"}, "pooling_type='MAX'"),
        ({"pooling_mode_mean_tokens": True}, [], {"dimensions": 33}, r"not in \[1, 32\]"),
        ({"pooling_mode_mean_tokens": True}, [], {"logit_sigma": 0}, "logit_sigma=0"),
    ],
)
def test_faults_are_named(cpu, pooling, modules, asked, words):
    with pytest.raises(ConfigError, match=words):
        config_of(cpu, BERT, sentence_files(pooling, *modules), pooler_config=asked)


@pytest.mark.parametrize(
    ("entries", "activation"),
    [
        ({"num_labels": 1}, "sigmoid"),
        ({"id2label": {"0": "a", "1": "b"}}, "softmax"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "sigmoid"),
        ({"num_labels": 1, "problem_type": "regression"}, "identity"),
        (
            {"num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.modules.Identity"},
            "identity",
        ),
        ({"num_labels": 1, "sentence_transformers": {"activation_fn": "x.Sigmoid"}}, "sigmoid"),
    ],
)
def test_what_is_done_to_scores(cpu, entries, activation):
    classifier = BERT | {"architectures": ["BertForSequenceClassification"]} | entries
    pooler = config_of(cpu, classifier).model.pooler
    assert pooler.activation == activation
    assert pooler.scores_pairs == (len(pooler.labels) == 1)


RERANKER = BERT | {
    "architectures": ["Qwen3ForSequenceClassification"],
    "head_dim": 8,
    "classifier_from_token": ["no", "yes"],
}
IDS = {"no": 7, "yes": 9}


@pytest.mark.parametrize(
    ("entries", "expected", "labels"),
    [
        ({}, TokenScores((7, 9), two_way=True), ("yes",)),
        ({"method": "no_post_processing"}, TokenScores((7, 9), two_way=False), ("no", "yes")),
        ({"classifier_from_token": ["yes"]}, TokenScores((9,), two_way=False), ("yes",)),
        (
            {"architectures": ["Qwen3ForCausalLM"], "convert": "classify"},
            TokenScores((7, 9), two_way=True),
            ("yes",),
        ),
    ],
)
def test_scores_by_the_logits_of_tokens(cpu, entries, expected, labels):
    convert = entries.get("convert", "auto")
    pooler = config_of(cpu, RERANKER | entries, token_ids=IDS, convert=convert).model.pooler
    assert (pooler.token_scores, pooler.labels) == (expected, labels)
    assert pooler.seq_pooling_type == "LAST"
    assert pooler.activation == ("sigmoid" if len(labels) == 1 else "softmax")
    assert pooler.pair_template is None


def test_scores_that_sentence_transformers_takes_from_logits(cpu):
    """A generator whose modules.json says so scores pairs without being asked to."""
    score = SentenceModule("LogitScore", "1_LogitScore", {"true_token_id": 9, "false_token_id": 7})
    sentence = SentenceFiles((SentenceModule("Transformer", ""), score))
    generator = RERANKER | {"architectures": ["Qwen3ForCausalLM"], "classifier_from_token": None}
    pooler = config_of(cpu, generator, sentence).model.pooler
    assert pooler.token_scores == TokenScores((7, 9), two_way=True)
    assert pooler.scores_pairs


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"classifier_from_token": "yes"}, "expected tokens"),
        ({"classifier_from_token": ["no", "maybe"]}, "'maybe', which the vocabulary has not"),
        ({"method": "other"}, "method='other'"),
        ({"classifier_from_token": ["yes"], "method": "from_2_way_softmax"}, "is for two"),
        ({"architectures": ["BertForSequenceClassification"]}, "leave out classifier_from_token"),
    ],
)
def test_faults_of_scores_by_logits(cpu, entries, words):
    with pytest.raises(ConfigError, match=words):
        config_of(cpu, RERANKER | entries, token_ids=IDS)


def test_how_a_pair_becomes_one_text(cpu):
    original = RERANKER | {"is_original_qwen3_reranker": True}
    known = config_of(cpu, original, token_ids=IDS).model.pooler.pair_template
    assert known.before.endswith("<Query>: ")
    assert known.between == "\n<Document>: "
    asked = {"pair_template": "q: {query} d: {document}!"}
    pooler = config_of(cpu, original, token_ids=IDS, pooler_config=asked).model.pooler
    assert pooler.pair_template == PairTemplate("q: ", " d: ", "!")
    for text in ("{document} {query}", "{query}", "{query} {document} {query}", 3):
        with pytest.raises(ConfigError, match="pair_template="):
            config_of(cpu, original, token_ids=IDS, pooler_config={"pair_template": text})


def test_an_encoder_with_a_window(cpu):
    modern = BERT | {
        "architectures": ["ModernBertModel"],
        "num_hidden_layers": 5,
        "global_attn_every_n_layers": 2,
        "local_attention": 10,
        "global_rope_theta": 5000.0,
        "local_rope_theta": 70.0,
    }
    arch = config_of(cpu, modern).model.arch
    assert [arch.window(layer) for layer in range(5)] == [None, 6, None, 6, None]
    assert (arch.rope.theta, arch.sliding_rope.theta) == (5000.0, 70.0)
    assert all(arch.rotates)
    classifier = modern | {"architectures": ["ModernBertForSequenceClassification"]}
    for word, kind in (("mean", "MEAN"), ("cls", "CLS"), (None, "CLS")):
        pooler = config_of(cpu, classifier | {"classifier_pooling": word}).model.pooler
        assert pooler.seq_pooling_type == kind


def test_matryoshka_dimensions(cpu):
    pooler = config_of(cpu, BERT | {"matryoshka_dimensions": [8, 16]}).model.pooler
    assert (pooler.matryoshka, pooler.matryoshka_dimensions) == (True, (8, 16))
    assert not config_of(cpu, BERT).model.pooler.matryoshka
