import pytest
from google.protobuf import text_format

from halimede.bench.errors import BenchError
from halimede.config.model_config_pb2 import ModelConfig
from halimede.tune.knobs import (
    KINDS,
    Knob,
    Target,
    Value,
    check_kinds,
    first_guesses,
    front_ends,
    knobs_of,
    normalised,
    now,
)

ONNX = 'backend: "onnxruntime" max_batch_size: 8 '


def target(text: str, effective: str = "") -> Target:
    written = text_format.Parse(text, ModelConfig())
    return Target("m", written, text_format.Parse(effective or text, ModelConfig()))


def knobs(one: Target) -> dict[str, Knob]:
    return {knob.kind: knob for knob in knobs_of(one, 4, KINDS, ("cuda", "tensorrt"), 32)}


def changed(one: Target, **values: Value) -> str:
    """The lines after changing some knobs."""
    found = list(knobs(one).values())
    setting = now(found) | {f"{kind.replace('_', '-')}:m": value for kind, value in values.items()}
    return one.lines(found, setting)


def test_only_what_the_model_has_a_use_for_is_varied() -> None:
    assert set(knobs(target(ONNX))) == set(KINDS) - {"front-ends"}
    assert set(knobs(target('backend: "python"'))) == {"instances", "isolation"}
    assert set(knobs(target('backend: "fil" max_batch_size: 4 sequence_batching {}'))) == {"instances"}
    assert knobs(target("ensemble_scheduling { step { model_name: 'a' } }")) == {}
    assert [knob.name for knob in knobs_of(target(ONNX), 4, ["threads"], (), 32)] == ["threads:m"]


def test_what_is_now_is_the_configuration_as_the_server_completed_it() -> None:
    effective = ONNX + (
        "instance_group { count: 3 } dynamic_batching { max_queue_delay_microseconds: 70 } "
        'parameters { key: "isolation" value { string_value: "process" } } '
        'parameters { key: "intra_op_thread_count" value { string_value: "3" } }'
    )
    found = knobs(target("", effective))
    assert {kind: knob.now for kind, knob in found.items()} == {
        "instances": 3, "batching": True, "delay": 70, "max-batch": 8, "threads": 3, "isolation": "process",
        "provider": "cpu",
    }  # fmt: skip
    assert all(knob.now in knob.choices for knob in found.values())
    assert found["instances"].choices == (1, 2, 3, 4, 8)


def test_nothing_is_written_for_what_stays() -> None:
    assert changed(target(ONNX)) == ""
    assert changed(target(ONNX), batching=True) == "dynamic_batching {\n}\n"


def test_lines_of_a_setting() -> None:
    lines = changed(
        target(ONNX), batching=True, delay=500, max_batch=16, instances=2, threads=1, isolation="process"
    )
    assert text_format.Parse(lines, ModelConfig()) == text_format.Parse(
        "max_batch_size: 16 instance_group { count: 2 } dynamic_batching { max_queue_delay_microseconds: 500 } "
        'parameters { key: "isolation" value { string_value: "process" } } '
        'parameters { key: "intra_op_thread_count" value { string_value: "1" } }',
        ModelConfig(),
    )


COMPLETED = (
    'backend: "onnxruntime" max_batch_size: 4 input { name: "a" data_type: TYPE_FP32 dims: 1 } '
    'output { name: "b" data_type: TYPE_FP32 dims: 1 } dynamic_batching {}'
)


def test_batching_that_completion_turned_on_can_be_turned_off() -> None:
    """Completion leaves a configuration alone that lists its tensors."""
    config = text_format.Parse(changed(target("", COMPLETED), batching=False), ModelConfig())
    assert not config.HasField("dynamic_batching")
    assert (config.max_batch_size, config.input[0].name, config.output[0].name) == (4, "a", "b")


def test_a_delay_of_batching_that_completion_turned_on_is_written() -> None:
    assert (
        changed(target("", COMPLETED), delay=500)
        == "dynamic_batching {\n  max_queue_delay_microseconds: 500\n}\n"
    )
    assert "dynamic_batching" not in changed(target("", COMPLETED), batching=False, delay=500)


def test_batching_that_a_python_model_turns_on_is_not_varied() -> None:
    by_model = target('backend: "python"', COMPLETED.replace("onnxruntime", "python"))
    assert set(knobs(by_model)) == {"instances", "delay", "max-batch", "isolation"}
    written = COMPLETED.replace("onnxruntime", "python")
    assert "batching" in knobs(target(written, written))


@pytest.mark.parametrize(
    ("values", "completed"),
    [
        (
            {"batching": False},
            "batching:m=False has no effect: the server completes the configuration to True",
        ),
        ({"delay": 500}, "delay:m=500 has no effect: the server completes the configuration to 0"),
        ({"max-batch": 8}, "max-batch:m=8 has no effect: the server completes the configuration to 4"),
        ({"instances": 2}, "instances:m=2 has no effect: the server completes the configuration to 1"),
        ({"threads": 2}, "threads:m=2 has no effect: the server completes the configuration to 0"),
        ({"isolation": "process"}, "isolation:m=process has no effect: the server completes the .* to none"),
    ],
)
def test_a_value_that_completion_undoes_is_told(values: dict[str, Value], completed: str) -> None:
    one = target("", COMPLETED)
    found = list(knobs(one).values())
    setting = now(found) | {f"{kind}:m": value for kind, value in values.items()}
    with pytest.raises(BenchError, match=f"^{completed}$"):
        one.check(found, setting, one.effective)
    one.check(found, now(found), one.effective)


def test_groups_of_instances_are_kept() -> None:
    one = target(
        ONNX + "instance_group { kind: KIND_CPU count: 1 } instance_group { kind: KIND_GPU gpus: 1 count: 1 }"
    )
    config = text_format.Parse(changed(one, instances=4), ModelConfig())
    assert [(group.count, list(group.gpus)) for group in config.instance_group] == [(4, []), (4, [1])]


def test_preferred_sizes_above_the_largest_batch_go() -> None:
    one = target(ONNX + "dynamic_batching { preferred_batch_size: [ 4, 8 ] }")
    config = text_format.Parse(changed(one, max_batch=4), ModelConfig())
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    assert "# without dynamic_batching" in changed(one, batching=False)


def test_providers() -> None:
    gpu = text_format.Parse(changed(target(ONNX), provider="tensorrt"), ModelConfig())
    assert gpu.optimization.execution_accelerators.gpu_execution_accelerator[0].name == "tensorrt"
    assert gpu.instance_group[0].kind == gpu.instance_group[0].KIND_GPU
    other = text_format.Parse(changed(target(ONNX), provider="openvino-backend"), ModelConfig())
    assert (other.backend, other.default_model_filename) == ("openvino", "model.onnx")


def test_settings_that_make_equal_servers_are_one() -> None:
    found = list(knobs(target(ONNX)).values())
    without = normalised(found, {**now(found), "delay:m": 5000, "max-batch:m": 32})
    assert without == now(found)
    assert normalised(found, {**now(found), "batching:m": True, "delay:m": 500})["delay:m"] == 500


def test_first_guesses_batch_and_use_all_cores() -> None:
    found = [*knobs(target(ONNX)).values(), front_ends(4)]
    both = first_guesses(found)[-1]
    assert (both["batching:m"], both["instances:m"], both["threads:m"], both["front-ends"]) == (True, 4, 1, 1)


def test_unknown_kinds_are_refused() -> None:
    check_kinds(KINDS)
    with pytest.raises(BenchError, match="'colour' cannot be varied; what can is instances, "):
        check_kinds(["colour"])
