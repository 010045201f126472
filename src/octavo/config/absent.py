"""Options that users of other engines bring along and this version has not, with the reason."""

from __future__ import annotations

_GROUPS = {
    "LoRA adapters are not there yet": (
        "default_mm_loras enable_lora enable_mixed_moe_lora_format enable_tower_connector_lora "
        "fully_sharded_loras lora_dtype lora_modules lora_target_modules max_cpu_loras "
        "max_lora_rank max_loras specialize_active_lora"
    ),
    "mixture-of-experts models are not there yet": (
        "all2all_backend enable_elastic_ep enable_ep_weight_filter enable_eplb "
        "enable_expert_parallel enable_return_routed_experts eplb_config "
        "expert_placement_strategy moe_backend"
    ),
    "models read text only in this version": (
        "allowed_local_media_path allowed_media_domains disable_chunked_mm_input enable_mm_embeds "
        "interleave_mm_strings language_model_only limit_mm_per_prompt media_io_kwargs "
        "mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path "
        "mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path mm_encoder_only "
        "mm_encoder_tp_mode mm_ipc_gpu_memory_gb mm_processor_cache_gb mm_processor_cache_type "
        "mm_processor_kwargs mm_shm_cache_max_object_size_mb mm_tensor_ipc skip_mm_profiling "
        "video_pruning_rate"
    ),
    "speculative decoding is not there yet": (
        "spec_method spec_model spec_tokens speculative_config"
    ),
    "state-space layers are not there yet": (
        "enable_mamba_cache_stochastic_rounding gdn_prefill_backend mamba_backend "
        "mamba_block_size mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds "
        "mamba_ssm_cache_dtype"
    ),
    "the KV cache stays on its device in this version": (
        "ec_transfer_config kv_events_config kv_offloading_backend kv_offloading_size "
        "kv_transfer_config"
    ),
    "weights stay on their device in this version": (
        "cpu_offload_gb cpu_offload_params offload_backend offload_group_size "
        "offload_num_in_group offload_params offload_prefetch_step"
    ),
    "one server drives one device in this version": (
        "cp_kv_cache_interleave_size cpu_distributed_timeout_seconds data_parallel_address "
        "data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb "
        "data_parallel_multi_port_external_lb data_parallel_rank data_parallel_rpc_port "
        "data_parallel_size_local data_parallel_start_rank data_parallel_supervisor_port "
        "dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend "
        "dcp_kv_cache_interleave_size decode_context_parallel_size disable_custom_all_reduce "
        "disable_nccl_for_dp_synchronization distributed_timeout_seconds "
        "dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s "
        "dp_supervisor_probe_timeout_s enable_dbo headless master_addr master_port nnodes "
        "node_rank prefill_context_parallel_size ray_workers_use_nsight ubatch_size"
    ),
    "files are read by several threads, or mapped on a CPU": (
        "safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads"
    ),
    "a preempted request is computed again, never swapped out": "swap_space",
    "a model's files say what its tokenizer is, tekken.json included": "tokenizer_mode",
    "HF_TOKEN is read from the environment": "hf_token",
    "it is called --runner and --convert now": "task",
    "it is called --structured-outputs-backend now": "guided_decoding_backend",
    "/load is always there": "enable_server_load_tracking",
    "loaders have no settings of their own": "model_loader_extra_config",
    "message parts are written as the template wants them": "chat_template_content_format",
    "one engine, one log line, in this version": "aggregate_engine_logging",
    "progress shows on terminals only; TQDM_DISABLE=1 turns it off there too": "use_tqdm_on_load",
    "prompts are text or token ids in this version": "enable_prompt_embeds",
    "PyTorch files are mapped, whatever device they were saved from": "pt_load_map_location",
    "the page at /docs always comes from the server itself": "enable_offline_docs",
    "the page at /docs is static and shows nothing without a key": "disable_fastapi_docs",
    "the server runs no code of others in its HTTP layer": "middleware",
    "the server runs no tools itself in this version": "tool_server",
    "the server speaks HTTP": "grpc",
}

_REASONS = {name: reason for reason, names in _GROUPS.items() for name in names.split()}


def why_absent(name: str) -> str | None:
    """What to tell someone who gives the option `name` (dashes allowed); None if it means nothing.

    A flag's leading dashes and the `no-` of its negative form are not looked at.
    """
    words = name.lstrip("-").replace("-", "_")
    reason = _REASONS.get(words) or _REASONS.get(words.removeprefix("no_"))
    return None if reason is None else f"{name} is refused: {reason}; leave it out"
