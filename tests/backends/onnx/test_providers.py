import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec
from halimede.backends.onnx.backend import OnnxModel
from halimede.backends.onnx.providers import load_cuda, providers, run_options, session_options
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_text
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnsupportedError
from tests.backends.helpers import load, source_of
from tests.support import onnx_models

ALL_PROVIDERS = [
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "OpenVINOExecutionProvider",
    "CPUExecutionProvider",
]


def config_of(text: str = "", **parameters: str) -> ModelConfig:
    config = parse_text('name: "m" ' + text, "test")
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return config


def options_of(
    text: str = "", backend: BackendOptions | None = None, parameters: dict[str, str] | None = None
) -> onnxruntime.SessionOptions:
    config = config_of(text, **(parameters or {}))
    return session_options(config, backend or BackendOptions(cpu_threads=6), Path("m"))


def test_threads_are_the_servers_budget_and_do_not_spin() -> None:
    options = options_of()
    assert options.intra_op_num_threads == 6
    assert options.inter_op_num_threads == 6
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    assert options.enable_cpu_mem_arena
    assert options.enable_mem_pattern
    assert options.use_per_session_threads


def test_every_parameter_reaches_the_session() -> None:
    options = options_of(
        parameters={
            "intra_op_thread_count": "3",
            "inter_op_thread_count": "2",
            "execution_mode": "1",
            "enable_mem_arena": "0",
            "enable_mem_pattern": "0",
            "session.use_device_allocator_for_initializers": "1",
            "session.intra_op.allow_spinning": "1",
            "session.force_spinning_stop": "1",
            "session.intra_op.spin_duration_us": "100",
        }
    )
    assert options.intra_op_num_threads == 3
    assert options.inter_op_num_threads == 2
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.use_device_allocator_for_initializers") == "1"
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    assert options.get_session_config_entry("session.intra_op.spin_duration_us") == "100"


def test_zero_threads_leaves_the_number_to_onnxruntime() -> None:
    assert options_of(parameters={"intra_op_thread_count": "0"}).intra_op_num_threads == 0


def test_thread_counts_of_the_command_line_give_way_to_the_models() -> None:
    backend = BackendOptions({"intra_op_thread_count": "5", "inter_op_thread_count": "4"}, cpu_threads=6)
    options = options_of(backend=backend, parameters={"inter_op_thread_count": "1"})
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (5, 1)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (-1, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC),
        (0, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL),
        (1, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED),
        (2, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL),
    ],
)
def test_graph_level_is_onnxruntimes(level: int, expected: object) -> None:
    assert options_of(f"optimization {{ graph {{ level: {level} }} }}").graph_optimization_level == expected


@pytest.mark.parametrize(("verbose", "severity"), [(0, 2), (1, 1), (2, 0), (5, 0)])
def test_log_level_follows_the_servers(verbose: int, severity: int) -> None:
    assert options_of(backend=BackendOptions(verbose=verbose)).log_severity_level == severity


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("intra_op_thread_count", "many", "must be an integer of at least 0, got 'many'"),
        ("inter_op_thread_count", "-1", "must be an integer of at least 0, got '-1'"),
        ("execution_mode", "2", "must be one of '0', '1', got '2'"),
        ("enable_mem_arena", "yes", "must be one of '0', '1', got 'yes'"),
        ("enable_mem_pattern", "", "must be one of '0', '1', got ''"),
        ("session.use_device_allocator_for_initializers", "true", "must be one of '0', '1', got 'true'"),
    ],
)
def test_bad_parameters_are_told_with_model_and_key(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        options_of(parameters={key: value})
    assert caught.value.message == f"model 'm': parameter '{key}' {message}"


def test_bad_graph_level_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match=r"optimization\.graph\.level must be -1 .* got 7"):
        options_of("optimization { graph { level: 7 } }")


@pytest.mark.parametrize(
    ("key", "value"),
    [("intra_op_thread_count", "x"), ("inter_op_thread_count", "-2"), ("enable-global-threadpool", "on")],
)
def test_bad_settings_of_the_command_line_are_told(key: str, value: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"--backend-config=onnxruntime,{key} must be .* '{value}'"
    ):
        options_of(backend=BackendOptions({key: value}))


def test_missing_operator_library_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot load the custom operator library 'none.so': "):
        session_options(
            config_of('model_operations { op_library_filename: "none.so" }'), BackendOptions(), tmp_path
        )


def test_global_pool_is_refused_where_python_cannot_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnxruntime, "set_global_thread_pool_sizes", raising=False)
    with pytest.raises(UnsupportedError, match="enable-global-threadpool needs a newer onnxruntime than"):
        options_of(backend=BackendOptions({"enable-global-threadpool": "1"}))


def test_arena_shrinkage_is_a_run_option(tmp_path: Path) -> None:
    config = config_of()
    config.parameters["memory.enable_memory_arena_shrinkage"].string_value = "cpu:0"
    options = run_options(config, BackendOptions())
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    text = """
        parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "cpu:0" } }
    """
    import numpy as np

    model = load(tmp_path, text, onnx_models.identity(dims=(1,)))
    assert model(INPUT0=np.ones((1, 1), np.float32))["OUTPUT0"].tolist() == [[1]]


@pytest.mark.parametrize("value", ["", "cpu", "cpu:0;", "tpu:0", "cpu:0,gpu:0"])
def test_bad_arena_is_told_when_the_model_loads(value: str) -> None:
    config = config_of()
    config.parameters["memory.enable_memory_arena_shrinkage"].string_value = value
    with pytest.raises(InvalidArgumentError, match=f"must name arenas as in 'cpu:0' .* got '{value}'"):
        run_options(config, BackendOptions())


def test_cpu_instances_run_on_the_cpu() -> None:
    assert providers(config_of(), "KIND_CPU", 0) == [("CPUExecutionProvider", {})]
    assert providers(config_of(), "KIND_MODEL", 0) == [("CPUExecutionProvider", {})]


@pytest.mark.parametrize(
    ("text", "kind", "provider", "package"),
    [
        ("", "KIND_GPU", "CUDAExecutionProvider", "onnxruntime-gpu"),
        (
            'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
            "KIND_GPU",
            "TensorrtExecutionProvider",
            "onnxruntime-gpu",
        ),
        (
            'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }',
            "KIND_CPU",
            "OpenVINOExecutionProvider",
            "onnxruntime-openvino",
        ),
    ],
)
def test_absent_provider_is_told(
    text: str, kind: str, provider: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(UnsupportedError) as caught:
        providers(config_of(text), kind, 0)
    assert f"model 'm' needs the {provider} of onnxruntime" in caught.value.message
    assert f"install the package {package} in place of onnxruntime" in caught.value.message
    assert "CPUExecutionProvider" in caught.value.message


@pytest.mark.parametrize("side", ["gpu", "cpu"])
def test_unknown_accelerator_is_told(side: str) -> None:
    text = f'optimization {{ execution_accelerators {{ {side}_execution_accelerator {{ name: "warp" }} }} }}'
    with pytest.raises(InvalidArgumentError) as caught:
        providers(config_of(text), f"KIND_{side.upper()}", 0)
    assert caught.value.message == "unknown Execution Accelerator 'warp' is requested"


def test_the_accelerator_openvino_has_no_parameters() -> None:
    text = """optimization { execution_accelerators { cpu_execution_accelerator {
        name: "openvino" parameters { key: "num_streams" value: "2" } } } }"""
    with pytest.raises(InvalidArgumentError) as caught:
        providers(config_of(text), "KIND_CPU", 0)
    assert caught.value.message == (
        "the Execution Accelerator 'openvino' has no parameters; remove 'num_streams'"
    )


@pytest.fixture
def every_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ALL_PROVIDERS)


@pytest.mark.usefixtures("every_provider")
def test_gpu_instances_prefer_cuda_with_the_parameters_of_the_model() -> None:
    config = config_of(
        cudnn_conv_algo_search="1",
        gpu_mem_limit="1000",
        arena_extend_strategy="1",
        do_copy_in_default_stream="0",
    )
    assert providers(config, "KIND_GPU", 3) == [
        (
            "CUDAExecutionProvider",
            {
                "device_id": "3",
                "cudnn_conv_algo_search": "HEURISTIC",
                "arena_extend_strategy": "kSameAsRequested",
                "do_copy_in_default_stream": "0",
                "gpu_mem_limit": "1000",
            },
        ),
        ("CPUExecutionProvider", {}),
    ]


@pytest.mark.usefixtures("every_provider")
@pytest.mark.parametrize("key", ["cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy"])
def test_bad_cuda_parameters_are_told(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"parameter '{key}' must be .* got '9x'"):
        providers(config_of(**{key: "9x"}), "KIND_GPU", 0)


@pytest.mark.usefixtures("every_provider")
def test_accelerators_come_before_cuda_with_their_parameters() -> None:
    text = """
        optimization { execution_accelerators {
            gpu_execution_accelerator {
                name: "tensorrt"
                parameters { key: "precision_mode" value: "FP16" }
                parameters { key: "max_workspace_size_bytes" value: "1024" }
                parameters { key: "trt_engine_cache_enable" value: "1" }
                parameters { key: "engine_cache_path" value: "/tmp/engines" }
            }
            gpu_execution_accelerator { name: "cuda" parameters { key: "use_tf32" value: "0" } }
        } }
    """
    assert providers(config_of(text), "KIND_GPU", 1) == [
        (
            "TensorrtExecutionProvider",
            {
                "device_id": "1",
                "trt_fp16_enable": "True",
                "trt_max_workspace_size": "1024",
                "trt_engine_cache_enable": "True",
                "trt_engine_cache_path": "/tmp/engines",
            },
        ),
        ("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "0"}),
        ("CPUExecutionProvider", {}),
    ]


TENSORRT_KEYS = [
    "int8_use_native_calibration_table",
    "int8_calibration_table_name",
    "max_partition_iterations",
    "min_subgraph_size",
    "dla_enable",
    "dla_core",
    "engine_cache_enable",
    "engine_cache_path",
    "engine_cache_prefix",
    "dump_subgraphs",
    "force_sequential_engine_build",
    "context_memory_sharing_enable",
    "layer_norm_fp32_fallback",
    "timing_cache_enable",
    "timing_cache_path",
    "force_timing_cache",
    "detailed_build_log",
    "build_heuristics_enable",
    "sparsity_enable",
    "builder_optimization_level",
    "auxiliary_streams",
    "tactic_sources",
    "extra_plugin_lib_paths",
    "profile_min_shapes",
    "profile_max_shapes",
    "profile_opt_shapes",
    "cuda_graph_enable",
    "dump_ep_context_model",
    "ep_context_file_path",
    "ep_context_embed_mode",
]


@pytest.mark.usefixtures("every_provider")
@pytest.mark.parametrize("prefix", ["", "trt_"])
@pytest.mark.parametrize("key", TENSORRT_KEYS)
def test_every_tensorrt_parameter_reaches_the_provider(key: str, prefix: str) -> None:
    text = f"""optimization {{ execution_accelerators {{ gpu_execution_accelerator {{
        name: "TensorRT" parameters {{ key: "{prefix}{key}" value: "1" }} }} }} }}"""
    (name, options), *_ = providers(config_of(text), "KIND_GPU", 0)
    assert name == "TensorrtExecutionProvider"
    assert options in ({"device_id": "0", f"trt_{key}": value} for value in ("1", "True"))


@pytest.mark.usefixtures("every_provider")
@pytest.mark.parametrize(
    ("mode", "option"),
    [
        ("FP32", {}),
        ("FP16", {"trt_fp16_enable": "True"}),
        ("BF16", {"trt_bf16_enable": "True"}),
        ("INT8", {"trt_int8_enable": "True"}),
    ],
)
def test_tensorrt_precisions_are_switches_of_the_provider(mode: str, option: dict[str, str]) -> None:
    text = f"""optimization {{ execution_accelerators {{ gpu_execution_accelerator {{
        name: "tensorrt" parameters {{ key: "precision_mode" value: "{mode}" }} }} }} }}"""
    (_, options), *_ = providers(config_of(text), "KIND_GPU", 0)
    assert options == {"device_id": "0", **option}


@pytest.mark.usefixtures("every_provider")
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("precision_mode", "FP8", "'precision_mode' must be FP32, FP16, BF16 or INT8, got 'FP8'"),
        ("dla_enable", "maybe", "'dla_enable' must be 0, 1, true or false, got 'maybe'"),
        ("warp", "9", "unknown parameter 'warp' is provided for TensorRT Execution Accelerator"),
    ],
)
def test_bad_tensorrt_parameters_are_told(key: str, value: str, message: str) -> None:
    text = f"""
        optimization {{ execution_accelerators {{ gpu_execution_accelerator {{
            name: "tensorrt" parameters {{ key: "{key}" value: "{value}" }}
        }} }} }}
    """
    with pytest.raises(InvalidArgumentError, match=message):
        providers(config_of(text), "KIND_GPU", 0)


@pytest.mark.usefixtures("every_provider")
def test_openvino_serves_cpu_instances() -> None:
    text = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
    assert providers(config_of(text), "KIND_CPU", 0)[0] == (
        "OpenVINOExecutionProvider",
        {"device_type": "CPU"},
    )


@pytest.mark.skipif(
    "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="needs the OpenVINO provider of onnxruntime: pip install onnxruntime-openvino",
)
def test_the_accelerator_openvino_gives_the_models_answers(tmp_path: Path) -> None:
    text = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
    loaded = load(tmp_path, text, onnx_models.add_sub())
    array = np.arange(32, dtype=np.float32).reshape(2, 16)
    outputs = loaded(INPUT0=array, INPUT1=array)
    np.testing.assert_allclose(outputs["OUTPUT0"], array + array)
    loaded.close()


@pytest.mark.usefixtures("every_provider")
def test_gpu_instances_may_block_and_have_a_session_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    real = onnxruntime.InferenceSession

    def session(path: str, options: object, providers: list[Any], **rest: object) -> object:
        asked.append(providers[0])
        made = real(path, options, ["CPUExecutionProvider"])
        monkeypatch.setattr(made, "get_providers", lambda: [name for name, _ in providers])
        return made

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    source = source_of(tmp_path, "instance_group { kind: KIND_GPU gpus: [2, 3] }", onnx_models.identity())
    backend = OnnxModel(source, BackendOptions(gpus=(2, 3)))
    backend.complete_config()
    instances = [backend.create_instance(InstanceSpec(f"m_{i}", i, "KIND_GPU", 2 + i)) for i in range(2)]
    assert all(instance.may_block for instance in instances)
    assert asked == [
        ("CUDAExecutionProvider", {"device_id": "2"}),
        ("CUDAExecutionProvider", {"device_id": "3"}),
    ]


@pytest.mark.usefixtures("every_provider")
def test_provider_that_does_not_start_is_an_error_and_nothing_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = onnxruntime.InferenceSession
    # onnxruntime only logs that CUDA's libraries are missing, and goes on with the CPU
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda path, options, *_, **rest: real(path, options, ["CPUExecutionProvider"]),
    )
    source = source_of(tmp_path, "instance_group { kind: KIND_GPU gpus: [0] }", onnx_models.identity())
    with pytest.raises(InternalError, match="'m': onnxruntime's CUDAExecutionProvider did not start, "):
        OnnxModel(source, BackendOptions(gpus=(0,))).complete_config()


def test_libraries_of_nvidias_packages_are_loaded_once_and_complaints_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Failed to load libcudart.so.13\n"
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: sys.stdout.write(text), raising=False)
    load_cuda.cache_clear()
    for _ in range(2):
        load_cuda()
    load_cuda.cache_clear()
    assert caplog.messages == ["onnxruntime: Failed to load libcudart.so.13"]
    assert not capsys.readouterr().out


def test_gpu_model_without_cuda_fails_to_load_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(HalimedeError, match="needs the CUDAExecutionProvider of onnxruntime"):
        load(tmp_path, "instance_group { kind: KIND_GPU gpus: [0] }", onnx_models.identity())
