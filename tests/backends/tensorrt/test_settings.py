import pytest

from halimede.backends.tensorrt.settings import TensorRTSettings, model_file
from halimede.config.parse import parse_text
from halimede.core.errors import InvalidArgumentError, UnsupportedError


def settings_of(text: str = "", **settings: str) -> TensorRTSettings:
    config = parse_text(f'name: "m" backend: "tensorrt" {text}', "test")
    return TensorRTSettings.of(config, {key.replace("_", "-"): value for key, value in settings.items()})


def test_without_settings_everything_has_tritons_default() -> None:
    assert settings_of() == TensorRTSettings("STATIC", (), False, True, True, 0)


def test_settings_are_read() -> None:
    text = """
        parameters { key: "execution_context_allocation_strategy" value { string_value: "ON_PROFILE_CHANGE" } }
        optimization { priority: PRIORITY_MAX input_pinned_memory { } output_pinned_memory { enable: true } }
    """
    settings = settings_of(
        text,
        plugins="/a/one.so; /a/two.so;",
        version_compatible="TRUE",
        coalesce_request_input="true",
        execution_policy="DEVICE_BLOCKING",
    )
    plugins = ("/a/one.so", "/a/two.so")
    assert settings == TensorRTSettings("ON_PROFILE_CHANGE", plugins, True, False, True, 1)
    assert settings_of("optimization { priority: PRIORITY_MIN }").priority == -1


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("version_compatible", "maybe", "true or false"),
        ("coalesce_request_input", "2", "true or false"),
        ("execution_policy", "EAGER", "BLOCKING or DEVICE_BLOCKING"),
    ],
)
def test_wrong_settings_are_told_with_right_ones(name: str, value: str, right: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        settings_of(**{name: value})
    flag = name.replace("_", "-")
    assert caught.value.message == f"--backend-config=tensorrt,{flag} must be {right}, got '{value}'"


def test_a_wrong_allocation_strategy_is_told_with_right_ones() -> None:
    key = "execution_context_allocation_strategy"
    with pytest.raises(InvalidArgumentError) as caught:
        settings_of(f'parameters {{ key: "{key}" value {{ string_value: "LAZY" }} }}')
    assert caught.value.message == (
        f"model 'm': parameter '{key}' must be one of 'STATIC', 'ON_PROFILE_CHANGE', got 'LAZY'"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("optimization.cuda.graphs", "optimization { cuda { graphs: true } }"),
        ("optimization.cuda.busy_wait_events", "optimization { cuda { busy_wait_events: true } }"),
        ("optimization.cuda.output_copy_stream", "optimization { cuda { output_copy_stream: true } }"),
        ("optimization.eager_batching", "optimization { eager_batching: true }"),
        ("instance_group.secondary_devices", "instance_group { secondary_devices { kind: KIND_NVDLA } }"),
    ],
)
def test_what_is_not_available_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(
        UnsupportedError, match=f"model 'm' sets '{name}', which the TensorRT backend does not"
    ):
        settings_of(text)


@pytest.mark.parametrize("kind", ["KIND_CPU", "KIND_MODEL"])
def test_instances_must_be_on_gpus(kind: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        settings_of(f'instance_group {{ name: "g" kind: {kind} }}')
    assert caught.value.message == (
        f"unable to load model 'm': instance group 'g' has kind {kind}; TensorRT runs on GPUs only (KIND_GPU)"
    )


def test_engines_for_other_gpus_have_files_of_their_own() -> None:
    text = 'name: "m" cc_model_filenames { key: "9.0" value: "hopper.plan" }'
    config = parse_text(text, "test")
    assert model_file(config, "9.0") == "hopper.plan"
    assert model_file(config, "8.6") == "model.plan"
    config.default_model_filename = "mine.plan"
    assert model_file(config, "8.6") == "mine.plan"
