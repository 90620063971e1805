"""What onnxruntime is told: session options, run options and execution providers, from the configuration.

Keys are those of Triton's ONNX Runtime backend; what a key does not say is left to onnxruntime, but for two
things. A session has as many threads as the server has processors, not the machine. And idle threads sleep
instead of spinning: with two requests at once on two processors, spinning took about 15 % of a ResNet-50's throughput.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from threading import Lock

import onnxruntime

from halimede.backends.base import BackendOptions
from halimede.backends.parameters import (
    choice_parameter,
    integer_parameter,
    parse_integer,
    text_parameter,
)
from halimede.config.model_config_pb2 import ModelConfig, ModelOptimizationPolicy
from halimede.core.errors import InvalidArgumentError, UnsupportedError

logger = logging.getLogger("halimede")

Providers = list[tuple[str, dict[str, str]]]
Accelerators = Iterable[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]

CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
CPU = "CPUExecutionProvider"

_PACKAGES = {CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", OPENVINO: "onnxruntime-openvino"}
"""The published packages that have a provider, each of which takes the place of `onnxruntime`."""

_SWITCH = {"0": "0", "1": "1"}
_SESSION_SWITCHES = (
    "session.use_device_allocator_for_initializers",
    "session.intra_op.allow_spinning",
    "session.inter_op.allow_spinning",
    "session.force_spinning_stop",
)
_SPIN_DURATION = "session.intra_op.spin_duration_us"
"""Known to onnxruntime since 1.32; older ones ignore it."""

_CUDA_CHOICES = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
    "do_copy_in_default_stream": _SWITCH,
}
_ARENAS = re.compile(r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*")
_SHRINK = "memory.enable_memory_arena_shrinkage"

_TENSORRT_SWITCHES = {
    "int8_use_native_calibration_table",
    "dla_enable",
    "engine_cache_enable",
    "dump_subgraphs",
    "force_sequential_engine_build",
    "context_memory_sharing_enable",
    "layer_norm_fp32_fallback",
    "timing_cache_enable",
    "force_timing_cache",
    "detailed_build_log",
    "build_heuristics_enable",
    "sparsity_enable",
    "cuda_graph_enable",
    "dump_ep_context_model",
}
_TENSORRT_VALUES = {
    "max_workspace_size",
    "int8_calibration_table_name",
    "max_partition_iterations",
    "min_subgraph_size",
    "dla_core",
    "engine_cache_path",
    "engine_cache_prefix",
    "timing_cache_path",
    "builder_optimization_level",
    "auxiliary_streams",
    "tactic_sources",
    "extra_plugin_lib_paths",
    "profile_min_shapes",
    "profile_max_shapes",
    "profile_opt_shapes",
    "ep_context_file_path",
    "ep_context_embed_mode",
}
_TENSORRT_NAMES = {"max_workspace_size_bytes": "max_workspace_size"}
_TENSORRT_PRECISIONS = {
    "FP32": "",
    "FP16": "trt_fp16_enable",
    "BF16": "trt_bf16_enable",
    "INT8": "trt_int8_enable",
}
_TRUTHS = {"1": "True", "true": "True", "0": "False", "false": "False"}

_pool_lock = Lock()


def session_options(
    config: ModelConfig, options: BackendOptions, directory: Path
) -> onnxruntime.SessionOptions:
    """The options of the model's sessions.

    Args:
        config: the model's configuration.
        options: what the command line says.
        directory: the model's directory, from which paths of custom operator libraries start.

    Raises:
        InvalidArgumentError: a parameter has no such value, or an operator library cannot be loaded.
        UnsupportedError: this onnxruntime has no global thread pool.
    """
    session = onnxruntime.SessionOptions()
    session.log_severity_level = max(0, 2 - options.verbose)
    session.logid = config.name
    session.graph_optimization_level = _graph_level(config)
    modes = {"0": onnxruntime.ExecutionMode.ORT_SEQUENTIAL, "1": onnxruntime.ExecutionMode.ORT_PARALLEL}
    mode = choice_parameter(config, "execution_mode", _SWITCH)
    if mode is not None:
        session.execution_mode = modes[mode]
    arena = choice_parameter(config, "enable_mem_arena", _SWITCH)
    if arena is not None:
        session.enable_cpu_mem_arena = arena == "1"
    pattern = choice_parameter(config, "enable_mem_pattern", _SWITCH)
    if pattern is not None:
        session.enable_mem_pattern = pattern == "1"
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for key in _SESSION_SWITCHES:
        value = choice_parameter(config, key, _SWITCH)
        if value is not None:
            session.add_session_config_entry(key, value)
    duration = integer_parameter(config, _SPIN_DURATION)
    if duration is not None:
        session.add_session_config_entry(_SPIN_DURATION, str(duration))
    _set_threads(session, config, options)
    for library in config.model_operations.op_library_filename:
        try:
            session.register_custom_ops_library(str(directory / library))
        except Exception as error:
            msg = f"model '{config.name}': cannot load the custom operator library '{library}': {error}"
            raise InvalidArgumentError(msg) from error
    return session


def _graph_level(config: ModelConfig) -> onnxruntime.GraphOptimizationLevel:
    levels = {
        -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        0: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        2: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }
    level = config.optimization.graph.level
    if level not in levels:
        msg = (
            f"model '{config.name}': optimization.graph.level must be -1 (basic), 0 (all), 1 (extended) or "
            f"2 (none), got {level}"
        )
        raise InvalidArgumentError(msg)
    return levels[level]


def _set_threads(session: onnxruntime.SessionOptions, config: ModelConfig, options: BackendOptions) -> None:
    """Decide the threads that the model's runs share: the session's own pool, or one pool for all models."""
    settings = options.settings
    what = "--backend-config=onnxruntime,"
    budget = str(options.cpu_threads)
    intra = parse_integer(f"{what}intra_op_thread_count", settings.get("intra_op_thread_count", budget))
    inter = parse_integer(f"{what}inter_op_thread_count", settings.get("inter_op_thread_count", budget))
    shared = settings.get("enable-global-threadpool", "0")
    if shared not in _SWITCH:
        raise InvalidArgumentError(f"{what}enable-global-threadpool must be '0' or '1', got '{shared}'")
    if shared == "1":
        with _pool_lock:
            _start_global_pool(intra, inter)
        session.use_per_session_threads = False
        return
    own = integer_parameter(config, "intra_op_thread_count")
    session.intra_op_num_threads = intra if own is None else own
    own = integer_parameter(config, "inter_op_thread_count")
    session.inter_op_num_threads = inter if own is None else own


@cache
def _start_global_pool(intra: int, inter: int) -> None:
    """Start the pool that the sessions of this process share. There is one, for as long as the process lives."""
    start: Callable[[int, int], None] | None = getattr(onnxruntime, "set_global_thread_pool_sizes", None)
    if start is None:
        msg = (
            f"enable-global-threadpool needs a newer onnxruntime than {onnxruntime.__version__}, whose Python "
            f"interface cannot set up a global thread pool"
        )
        raise UnsupportedError(msg)
    start(intra, inter)


def run_options(config: ModelConfig, options: BackendOptions) -> onnxruntime.RunOptions:
    """The options of the model's runs.

    Raises:
        InvalidArgumentError: a parameter has no such value.
    """
    run = onnxruntime.RunOptions()
    # the client is told of a failed run; the log need not repeat it
    run.log_severity_level = max(0, 2 - options.verbose) if options.verbose else 4
    arenas = text_parameter(config, _SHRINK)
    if arenas is not None:
        if not _ARENAS.fullmatch(arenas):
            msg = (
                f"model '{config.name}': parameter '{_SHRINK}' must name arenas as in 'cpu:0' or "
                f"'cpu:0;gpu:0', got '{arenas}'"
            )
            raise InvalidArgumentError(msg)
        run.add_run_config_entry(_SHRINK, arenas)
    return run


@cache
def load_cuda() -> None:
    """Load CUDA and cuDNN from NVIDIA's Python packages where they are installed: the loader does not look there."""
    said = StringIO()
    with redirect_stdout(said):
        getattr(onnxruntime, "preload_dlls", lambda: None)()  # which releases before 1.21 lack
    for line in said.getvalue().splitlines():
        logger.warning("onnxruntime: %s", line)


def has_cuda() -> bool:
    """Whether the installed onnxruntime can use NVIDIA GPUs."""
    return CUDA in onnxruntime.get_available_providers()


def providers(config: ModelConfig, kind: str, device: int) -> Providers:
    """The execution providers of an instance, the preferred one first, each with its options.

    Args:
        config: the model's configuration.
        kind: the instance's kind.
        device: the GPU's number, for KIND_GPU.

    Raises:
        InvalidArgumentError: there is no such accelerator, or it has no such parameter.
        UnsupportedError: the installed onnxruntime lacks the provider.
    """
    accelerators = config.optimization.execution_accelerators
    if kind == "KIND_GPU":
        chosen = _gpu_providers(config, accelerators.gpu_execution_accelerator, device)
    else:
        chosen = _cpu_providers(accelerators.cpu_execution_accelerator)
    available = onnxruntime.get_available_providers()
    for name, _ in chosen:
        if name not in available:
            msg = (
                f"model '{config.name}' needs the {name} of onnxruntime, which the installed package does not "
                f"have (it has {', '.join(available)}); install the package {_PACKAGES[name]} in place of onnxruntime, "
                f"or change instance_group and optimization.execution_accelerators"
            )
            raise UnsupportedError(msg)
    return [*chosen, (CPU, {})]


def _gpu_providers(config: ModelConfig, accelerators: Accelerators, device: int) -> Providers:
    cuda = {"device_id": str(device)}
    for key, choices in _CUDA_CHOICES.items():
        choice = choice_parameter(config, key, choices)
        if choice is not None:
            cuda[key] = choice
    limit = integer_parameter(config, "gpu_mem_limit")
    if limit is not None:
        cuda["gpu_mem_limit"] = str(limit)
    chosen: Providers = []
    for accelerator in accelerators:
        match accelerator.name.lower():
            case "tensorrt":
                chosen.append((TENSORRT, {"device_id": str(device), **_tensorrt(accelerator.parameters)}))
            case "cuda":
                cuda.update(accelerator.parameters)
            case _:
                raise _unknown_accelerator(accelerator.name)
    return [*chosen, (CUDA, cuda)]


def _cpu_providers(accelerators: Accelerators) -> Providers:
    chosen: Providers = []
    for accelerator in accelerators:
        if accelerator.name.lower() != "openvino":
            raise _unknown_accelerator(accelerator.name)
        if accelerator.parameters:
            keys = ", ".join(f"'{key}'" for key in sorted(accelerator.parameters))
            msg = f"the Execution Accelerator 'openvino' has no parameters; remove {keys}"
            raise InvalidArgumentError(msg)
        chosen.append((OPENVINO, {"device_type": "CPU"}))
    return chosen


def _tensorrt(parameters: Mapping[str, str]) -> dict[str, str]:
    """Parameters of the accelerator `tensorrt` as options of its provider, where they begin with ``trt_``."""
    chosen: dict[str, str] = {}
    for key, value in parameters.items():
        short = _TENSORRT_NAMES.get(key, key.removeprefix("trt_"))
        if short == "precision_mode":
            if value not in _TENSORRT_PRECISIONS:
                msg = f"TensorRT parameter 'precision_mode' must be FP32, FP16, BF16 or INT8, got '{value}'"
                raise InvalidArgumentError(msg)
            if option := _TENSORRT_PRECISIONS[value]:
                chosen[option] = "True"
        elif short in _TENSORRT_SWITCHES:
            if value.lower() not in _TRUTHS:
                msg = f"TensorRT parameter '{key}' must be 0, 1, true or false, got '{value}'"
                raise InvalidArgumentError(msg)
            chosen[f"trt_{short}"] = _TRUTHS[value.lower()]
        elif short in _TENSORRT_VALUES:
            chosen[f"trt_{short}"] = value
        else:
            msg = f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator"
            raise InvalidArgumentError(msg)
    return chosen


def _unknown_accelerator(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"unknown Execution Accelerator '{name}' is requested")
