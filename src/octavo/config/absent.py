"""Options that users of other engines bring along and this version has not, with the reason."""

from __future__ import annotations

_ADAPTERS = "LoRA adapters are not there yet"
_EXPERTS = "mixture-of-experts models are not there yet"
_MEDIA = "models read text only in this version"
_SPECULATION = "speculative decoding is not there yet"
_TRANSFER = "the KV cache stays on its device in this version"

_REASONS = {
    "aggregate_engine_logging": "one engine, one log line, in this version",
    "chat_template_content_format": "message parts are written as the template wants them",
    "cpu_offload_gb": "weights stay on their device in this version",
    "disable_fastapi_docs": "the page at /docs is static and shows nothing without a key",
    "enable_eplb": _EXPERTS,
    "enable_expert_parallel": _EXPERTS,
    "enable_lora": _ADAPTERS,
    "enable_offline_docs": "the page at /docs always comes from the server itself",
    "enable_server_load_tracking": "/load is always there",
    "guided_decoding_backend": "it is called --structured-outputs-backend now",
    "kv_offloading_size": _TRANSFER,
    "kv_transfer_config": _TRANSFER,
    "limit_mm_per_prompt": _MEDIA,
    "lora_modules": _ADAPTERS,
    "max_cpu_loras": _ADAPTERS,
    "max_lora_rank": _ADAPTERS,
    "max_loras": _ADAPTERS,
    "middleware": "the server runs no code of others in its HTTP layer",
    "mm_processor_kwargs": _MEDIA,
    "model_loader_extra_config": "loaders have no settings of their own",
    "pt_load_map_location": "PyTorch files are mapped, whatever device they were saved from",
    "safetensors_load_strategy": "files are read by several threads, or mapped on a CPU",
    "safetensors_prefetch_block_size": "files are read by several threads, or mapped on a CPU",
    "safetensors_prefetch_num_threads": "files are read by several threads, or mapped on a CPU",
    "speculative_config": _SPECULATION,
    "swap_space": "a preempted request is computed again, never swapped out",
    "task": "it is called --runner and --convert now",
    "tokenizer_mode": "a model's files say what its tokenizer is, tekken.json included",
    "tool_server": "the server runs no tools itself in this version",
    "use_tqdm_on_load": "progress shows on terminals only; TQDM_DISABLE=1 turns it off there too",
}


def why_absent(name: str) -> str | None:
    """What to tell someone who gives the option `name` (dashes allowed); None if it means nothing.

    A flag's leading dashes and the `no-` of its negative form are not looked at.
    """
    words = name.lstrip("-").replace("-", "_")
    reason = _REASONS.get(words) or _REASONS.get(words.removeprefix("no_"))
    return None if reason is None else f"{name} is refused: {reason}; leave it out"
