"""Every option of vLLM's that Octavo lacks, and what becomes of it: one table for flags, files,
variables and keywords.

An option that Octavo gets leaves this table. Names are those of vLLM 0.28 and, marked as removed,
of versions before it. `vllm_verdicts.py` says what the verdicts mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.vllm_verdicts import VllmOption, idle, refused

_ONE_RANK = "there is one rank"
_TEXT_ONLY = "only text is served; images, audio and video are refused"
_COMPILED = "nothing is compiled at start"
_KERNELS = "the kernels are chosen for this machine at start"
_STATES = "states of layers are kept in float32, in blocks of the one pool"
_ADAPTERS = "adapters are not supported"
_SPECULATION = "say it in --speculative-config; it would not change an answer"
_LOGGED = "requests are never logged"
_YOUR_CODE = "code from elsewhere is not loaded into the engine"
_DISTRIBUTED = "KV blocks are not sent to other engines"
_FILES = "files are mapped into memory as they are"
_WEIGHTS_IN_RAM = "weights are in the host's memory anyway"
_METRICS = "/metrics has what is measured here"
_OTHER_GRAMMARS = ("xgrammar", "outlines", "lm-format-enforcer")
_LLGUIDANCE = "llguidance compiles every grammar"
_SERVER = "it is an option of the server"

ENGINE_OPTIONS: tuple[VllmOption, ...] = (
    # Start and kernels
    *idle(
        _COMPILED,
        switch="enforce_eager",
        value="optimization_level max_cudagraph_capture_size performance_mode",
        list="cudagraph_capture_sizes",
        object="compilation_config",
    ),
    *idle(
        _KERNELS,
        switch="enable_flashinfer_autotune enable_bf16x3_router_gemm disable_cascade_attn "
        "jit_monitor_verbose",
        value="attention_backend moe_backend linear_backend jit_monitor_mode gdn_prefill_backend "
        "kda_prefill_backend",
        object="attention_config kernel_config ir_op_priority",
    ),
    *idle(
        _STATES,
        switch="use_replayssm enable_mamba_cache_stochastic_rounding",
        value="mamba_backend mamba_ssu_algorithm mamba_cache_dtype mamba_ssm_cache_dtype "
        "mamba_block_size mamba_cache_mode mamba_cache_philox_rounds replayssm_buffer_len",
    ),
    *idle("the number of threads is --threads", value="renderer_num_workers"),
    *idle("sampling has one precision", switch="use_fp64_gumbel"),
    *idle("there is no allocator of a GPU's memory", switch="enable_cumem_allocator"),
    *refused("the native back end runs on the CPU", ("auto", "cpu"), removed=True, value="device"),
    # Ranks and processes
    *refused(
        _ONE_RANK,
        (1,),
        value="tensor_parallel_size pipeline_parallel_size data_parallel_size nnodes "
        "data_parallel_size_local prefill_context_parallel_size decode_context_parallel_size",
    ),
    *refused(_ONE_RANK, (0,), value="node_rank data_parallel_rank data_parallel_start_rank"),
    *refused(_ONE_RANK, switch="enable_elastic_ep enable_fault_tolerance"),
    *idle(
        _ONE_RANK,
        switch="data_parallel_hybrid_lb data_parallel_external_lb disable_custom_all_reduce "
        "data_parallel_multi_port_external_lb disable_nccl_for_dp_synchronization enable_dbo "
        "enable_expert_parallel enable_ep_weight_filter enable_eplb ray_workers_use_nsight "
        "aggregate_engine_logging",
        value="distributed_executor_backend master_addr master_port distributed_timeout_seconds "
        "cpu_distributed_timeout_seconds dcp_comm_backend dcp_kv_cache_interleave_size "
        "cp_kv_cache_interleave_size data_parallel_address data_parallel_rpc_port "
        "data_parallel_backend all2all_backend expert_placement_strategy ubatch_size "
        "dbo_decode_token_threshold dbo_prefill_token_threshold max_parallel_loading_workers",
        object="eplb_config fault_tolerance_config",
    ),
    *refused("choose the cores with numactl or taskset", switch="numa_bind"),
    *refused("choose the cores with numactl or taskset", list="numa_bind_nodes numa_bind_cpus"),
    *refused("there is one device", list="device_ids"),
    *refused(_YOUR_CODE, ("auto",), value="worker_cls worker_extension_cls scheduler_cls"),
    *refused(_YOUR_CODE, value="io_processor_plugin reasoning_parser_plugin"),
    # Model and files
    *refused("use --quantization int8, int4 or fp8", object="quantization_config"),
    *idle("no way to quantise is deprecated", switch="allow_deprecated_quantization"),
    *refused(
        "the format is recognised from the files",
        ("auto", "hf", "safetensors", "gguf"),
        value="load_format",
    ),
    *idle(
        _FILES,
        switch="use_tqdm_on_load",
        value="safetensors_load_strategy safetensors_prefetch_num_threads "
        "safetensors_prefetch_block_size pt_load_map_location",
    ),
    *refused(_FILES, object="model_loader_extra_config"),
    *idle("only the files that are needed are fetched", list="ignore_patterns"),
    *refused("set OCTAVO_CACHE, or HF_HOME for hub models", value="download_dir"),
    *refused("set HF_TOKEN in the environment", ("true",), secret=True, value="hf_token"),
    *refused("name the folder that has both as the model", value="hf_config_path"),
    *refused("name the folder of another tokenizer with --tokenizer", value="tokenizer_revision"),
    *refused("code is that of --revision, with --trust-remote-code", value="code_revision"),
    *refused("see octavo.models.register", object="model_class_overrides"),
    *refused("no diffusion model is served", object="diffusion_config"),
    *refused("config.json is what is read", ("auto", "hf"), value="config_format"),
    *refused(
        "there is one kind of tokenizer", ("auto", "hf", "slow", "fast"), value="tokenizer_mode"
    ),
    *refused(
        "prompts are texts or token ids, answers are texts",
        switch="skip_tokenizer_init enable_prompt_embeds",
    ),
    *refused(
        "cap --max-model-len at the window, which has the same answers",
        switch="disable_sliding_window",
    ),
    *refused(
        "log-probabilities are those before penalties and temperature",
        ("raw_logprobs",),
        value="logprobs_mode",
    ),
    *refused("answers do not carry it", switch="enable_return_routed_experts return_sampling_mask"),
    *refused("the model stays loaded; end the process to free it", switch="enable_sleep_mode"),
    *refused("weights are never changed while they serve", object="weight_transfer_config"),
    *refused("there is no platform that reads it", object="additional_config"),
    *idle("octavo bench shows where a step's time goes", object="profiler_config"),
    # Cache and scheduler
    *idle("blocks have one kind of key", value="prefix_caching_hash_algo"),
    *idle(
        "blocks stay until the least recently used one must go",
        value="prefix_cache_retention_interval",
    ),
    *idle("prompts share to the token, also inside a block", value="prefix_match_unit"),
    *idle("blocks of every layer come from one pool", switch="disable_hybrid_kv_cache_manager"),
    *idle("every layer computes its own", switch="kv_sharing_fast_prefill"),
    *refused("every layer stores one type", list="kv_cache_dtype_skip_layers"),
    *refused(
        "use --swap-space for preempted requests, --kv-offload-dir for cached blocks",
        value="kv_offloading_size",
    ),
    *idle("see --swap-space and --kv-offload-dir", value="kv_offloading_backend"),
    *idle(
        _WEIGHTS_IN_RAM,
        value="cpu_offload_gb offload_backend offload_group_size offload_num_in_group "
        "offload_prefetch_step",
        list="cpu_offload_params offload_params",
    ),
    *refused(_DISTRIBUTED, object="kv_transfer_config ec_transfer_config"),
    *idle(_TEXT_ONLY, object="ec_manager_config"),
    *refused("use --max-num-batched-tokens", value="max_num_scheduled_tokens"),
    *idle("a request that cannot fit is refused, the others wait", value="watermark"),
    *idle("admission looks at the whole prompt", switch="scheduler_reserve_full_isl"),
    *idle("--max-decode-slowdown paces prompts", value="prefill_schedule_interval"),
    *idle("the scheduler runs between steps", switch="async_scheduling"),
    # Adapters, constraints
    *refused(_ADAPTERS, switch="enable_lora"),
    *refused(_ADAPTERS, object="default_mm_loras"),
    *idle(
        _ADAPTERS,
        switch="fully_sharded_loras enable_tower_connector_lora specialize_active_lora "
        "enable_mixed_moe_lora_format enable_moe_shared_loras",
        value="max_loras max_lora_rank max_cpu_loras lora_dtype",
        list="lora_target_modules",
    ),
    *refused(
        _LLGUIDANCE + ", and requests say the rest",
        ({"backend": "auto"}, {"backend": "guidance"}),
        without_effect=tuple({"backend": name} for name in _OTHER_GRAMMARS),
        object="structured_outputs_config",
    ),
    # Other than text
    *idle(
        _TEXT_ONLY,
        switch="language_model_only enable_mm_embeds interleave_mm_strings mm_encoder_only "
        "skip_mm_profiling mm_device_do_normalize disable_chunked_mm_input",
        value="allowed_local_media_path mm_processor_cache_gb mm_processor_cache_type "
        "mm_hasher_algorithm mm_shm_cache_max_object_size_mb mm_encoder_tp_mode "
        "mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path "
        "mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin video_pruning_rate "
        "video_pruning_method mm_tensor_ipc mm_processor_device mm_ipc_gpu_memory_gb",
        list="allowed_media_domains",
        object="limit_mm_per_prompt media_io_kwargs mm_processor_kwargs",
    ),
    # Logs, metrics, traces
    *idle(_LOGGED, switch="enable_log_requests"),
    *idle(_LOGGED, removed=True, switch="disable_log_requests"),
    *idle(
        _METRICS,
        switch="kv_cache_metrics cudagraph_metrics enable_mfu_metrics "
        "enable_logging_iteration_details enable_layerwise_nvtx_tracing",
        value="kv_cache_metrics_sample show_hidden_metrics_for_version",
    ),
    *idle("variables of vLLM are not checked", switch="fail_on_environ_validation"),
)
"""What engines of vLLM take: flags of every command that has an engine, keywords of `LLM`."""

REMOVED_OPTIONS: tuple[VllmOption, ...] = (
    *idle(
        _COMPILED,
        removed=True,
        value="max_seq_len_to_capture max_context_len_to_capture",
        list="cuda_graph_sizes",
    ),
    *idle(
        "there is one step at a time",
        removed=True,
        switch="multi_step_stream_outputs disable_async_output_proc",
        value="num_scheduler_steps num_lookahead_slots scheduler_delay_factor "
        "max_long_partial_prefills",
    ),
    *idle("there is one block manager", removed=True, switch="use_v2_block_manager"),
    *idle(
        _ONE_RANK,
        removed=True,
        switch="worker_use_ray engine_use_ray eplb_log_balancedness",
        value="num_redundant_experts eplb_window_size eplb_step_interval",
    ),
    *idle(
        "tokenizers run inside the process",
        removed=True,
        value="tokenizer_pool_size tokenizer_pool_type",
        object="tokenizer_pool_extra_config",
    ),
    *idle(
        _TEXT_ONLY,
        removed=True,
        switch="disable_mm_preprocessor_cache enable_multimodal_encoder_data_parallel",
    ),
    *idle(
        _SPECULATION,
        removed=True,
        switch="speculative_disable_mqa_scorer disable_logprobs_during_spec_decoding",
        value="speculative_model speculative_model_quantization num_speculative_tokens "
        "speculative_draft_tensor_parallel_size speculative_max_model_len ngram_prompt_lookup_max "
        "ngram_prompt_lookup_min speculative_disable_by_batch_size spec_decoding_acceptance_method",
    ),
    *idle(
        "a style of thoughts is found in the chat template", removed=True, switch="enable_reasoning"
    ),
    *idle(
        _LLGUIDANCE,
        removed=True,
        switch="guided_decoding_disable_fallback",
        value="guided_decoding_backend",
    ),
    *refused(
        _LLGUIDANCE + ", and requests say the rest",
        removed=True,
        switch="guided_decoding_disable_any_whitespace "
        "guided_decoding_disable_additional_properties",
    ),
    *idle(
        _ADAPTERS,
        removed=True,
        value="lora_extra_vocab_size max_prompt_adapters max_prompt_adapter_token",
        list="long_lora_scaling_factors",
    ),
    *refused(_ADAPTERS, removed=True, switch="enable_prompt_adapter"),
    *refused(
        "give --hf-overrides the key of config.json: rope_parameters, or rope_scaling, rope_theta",
        removed=True,
        value="rope_theta",
        object="rope_scaling",
    ),
    *refused("use --pooler-config", removed=True, object="override_pooler_config"),
    *refused(
        "scales of keys and values are found from data; use --kv-cache-dtype int8",
        removed=True,
        value="quantization_param_path",
    ),
    *refused(_YOUR_CODE, removed=True, value="logits_processor_pattern"),
    *idle("there is no such device", removed=True, object="override_neuron_config"),
    *idle("see --activation-dtype", removed=True, value="override_attention_dtype"),
)
"""Options of engines that vLLM itself has given up, and that scripts still carry."""

SERVER_OPTIONS: tuple[VllmOption, ...] = (
    *refused(_ADAPTERS, list="lora_modules"),
    *refused(_ADAPTERS, removed=True, list="prompt_adapters"),
    *refused(
        "name the template with --chat-template instead of in requests",
        switch="trust_request_chat_template",
    ),
    *refused("answers come from the assistant", ("assistant",), value="response_role"),
    *refused(_YOUR_CODE, value="tool_parser_plugin", list="middleware"),
    *refused("clients run the tools that a model calls", value="tool_server"),
    *refused("there is one process", switch="headless"),
    *refused("HTTP is what is spoken", switch="grpc tokens_only"),
    *idle("one process answers", value="api_server_count"),
    *idle("one process answers", removed=True, switch="disable_frontend_multiprocessing"),
    *idle(
        _ONE_RANK,
        value="data_parallel_supervisor_port dp_supervisor_probe_interval_s "
        "dp_supervisor_probe_timeout_s dp_supervisor_probe_failure_threshold",
    ),
    *idle("set OCTAVO_LOG_LEVEL", value="uvicorn_log_level log_config_file"),
    *idle(
        "there is no access log",
        switch="disable_uvicorn_access_log",
        value="disable_access_log_for_endpoints",
    ),
    *idle(
        _LOGGED,
        switch="enable_log_outputs enable_log_deltas log_error_stack",
        value="max_log_len",
    ),
    *idle("GET /load always tells the load", switch="enable_server_load_tracking"),
    *idle("answers have no system_fingerprint", value="fingerprint_mode fingerprint_value"),
    *idle(
        "--max-header-bytes and --max-body-bytes are the bounds",
        value="h11_max_incomplete_event_size h11_max_header_count",
    ),
    *idle("/docs works offline", switch="enable_offline_docs"),
    *idle("Cohere's chat is not served", switch="cohere_is_reasoning_model", value="cohere_format"),
    *idle("no model of this kind is served", switch="enable_flash_late_interaction"),
)
"""Flags of the server alone."""

BATCH_OPTIONS: tuple[VllmOption, ...] = (
    *idle("answers are written to the output as they come", value="output_tmp_dir"),
    *idle("run-batch opens no port", switch="enable_metrics", value="host port url"),
)
"""Flags of `run-batch` alone."""

KEYWORD_OPTIONS: tuple[VllmOption, ...] = (
    *idle(_SERVER, switch="disable_log_stats", value="reasoning_parser shutdown_timeout"),
    *idle(_SERVER, list="served_model_name"),
    *idle(_SERVER, object="reasoning_config"),
    *idle(_TEXT_ONLY, switch="enable_mm_processor_stats"),
    *refused("name the file as the model", value="model_weights"),
)
"""Keywords of engines in Python that are options of the server here, or no flags at all."""

FOREIGN: Mapping[str, VllmOption] = {
    row.name: row for row in (*ENGINE_OPTIONS, *REMOVED_OPTIONS, *KEYWORD_OPTIONS)
}
"""What a keyword of `LLM` may be besides a field of ours."""
