"""Parameters whose names are probably misspelt, so that they have no effect."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem

EVERYWHERE: Final = frozenset({"isolation"})
"""Parameters that every backend has."""

_LANGUAGE: Final = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_seqs", "tool_call_parser"})
KNOWN: Final = {
    "dali": frozenset({"num_threads", "split_along_outer_axis", "split_outer_dim"}),
    "fil": frozenset(
        {
            "algo", "blocks_per_sm", "chunk_size", "intra_op_thread_count", "is_classifier", "layout", "model_type",
            "output_class", "predict_proba", "storage_type", "threads_per_tree", "threshold", "transfer_threshold",
            "use_experimental_optimizations", "xgboost_allow_unknown_field",
        }
    ),
    "onnxruntime": frozenset(
        {
            "arena_extend_strategy", "cudnn_conv_algo_search", "do_copy_in_default_stream", "enable_mem_arena",
            "enable_mem_pattern", "execution_mode", "gpu_mem_limit", "inter_op_thread_count", "intra_op_thread_count",
            "memory.enable_memory_arena_shrinkage", "session.force_spinning_stop", "session.inter_op.allow_spinning",
            "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us",
            "session.use_device_allocator_for_initializers",
        }
    ),
    "openvino": frozenset(
        {
            "COMPILATION_NUM_THREADS", "CPU_BIND_THREAD", "CPU_EXTENSION_PATH", "CPU_THREADS_NUM",
            "CPU_THROUGHPUT_STREAMS", "ENABLE_BATCH_PADDING", "ENFORCE_BF16", "HINT_BF16", "INFERENCE_NUM_THREADS",
            "NUM_STREAMS", "PERFORMANCE_HINT", "RESHAPE_IO_LAYERS", "SKIP_DYNAMIC_BATCHSIZE",
            "SKIP_OV_DYNAMIC_BATCHSIZE", "TARGET_DEVICE",
        }
    ),
    "openvino_genai": _LANGUAGE
    | {
        "INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION", "TARGET_DEVICE", "cache_size", "draft_model",
        "dynamic_split_fuse", "enable_prefix_caching", "num_assistant_tokens", "num_kv_blocks",
    },
    "python": frozenset(
        {
            "EXECUTION_ENV_PATH", "EXECUTION_TIMEOUT_SECONDS", "FORCE_CPU_ONLY_INPUT_TENSORS",
            "MAX_CONCURRENT_EXECUTIONS", "SLOW_EXECUTION_SECONDS", "strict",
        }
    ),
    "pytorch": frozenset(
        {
            "DISABLE_CUDNN", "DISABLE_OPTIMIZED_EXECUTION", "ENABLE_CACHE_CLEANING", "ENABLE_JIT_EXECUTOR",
            "ENABLE_JIT_PROFILING", "ENABLE_NVFUSER", "ENABLE_TENSOR_FUSER", "ENABLE_WEIGHT_SHARING", "INFERENCE_MODE",
            "INTER_OP_THREAD_COUNT", "INTRA_OP_THREAD_COUNT", "NUM_INTEROP_THREADS", "NUM_THREADS",
            "TORCH_COMPILE_OPTIONAL_PARAMETERS",
        }
    ),
    "tensorflow": frozenset(
        {
            "MAX_SESSION_SHARE_COUNT", "TF_GRAPH_TAG", "TF_INIT_OPS_FILE", "TF_NUM_INTER_THREADS",
            "TF_NUM_INTRA_THREADS", "TF_SIGNATURE_DEF", "TF_USE_PER_SESSION_THREADS",
        }
    ),
    "tensorrt": frozenset(
        {"coalesce-request-input", "execution_context_allocation_strategy", "version-compatible"}
    ),
    "transformers": _LANGUAGE | {"cache_size", "dtype"},
    "vllm": _LANGUAGE | {"GPU_DEVICE_IDS"},
}  # fmt: skip
"""Backend → the parameters that it reads. Models may have others, which are theirs."""

_LIKENESS: Final = 0.8


def misspelt_parameters(config: ModelConfig) -> Iterator[Problem]:
    """Parameters that are none of the backend's, and almost the name of one that is not set."""
    known = KNOWN.get(config.backend, frozenset()) | EVERYWHERE
    folded = {name.casefold(): name for name in sorted(known)}
    for key in sorted(config.parameters.keys() - known):
        close = get_close_matches(key.casefold(), folded, 1, _LIKENESS)
        if not close or folded[close[0]] in config.parameters:
            continue
        right, text = folded[close[0]], config.parameters[key].string_value
        message = f"the parameter '{key}' is none of the backend {config.backend}; did you mean '{right}'?"
        fix = f'parameters {{ key: "{right}" value {{ string_value: "{text}" }} }}'
        yield Problem(config.name, f'parameters["{key}"]', message, fix)
