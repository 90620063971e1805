"""What the container's environment variables say, one by one."""

from pathlib import Path

import click
import pytest

from halimede.cli.flags import serve_command
from halimede.cli.sagemaker.environment import VARIABLES, environment_document, read_environment

ROOT = Path(__file__).parents[3]
TRITON = "SAGEMAKER_TRITON_"

FLAGS = [
    ("SAGEMAKER_BIND_TO_PORT", "9090", "--sagemaker-port=9090"),
    ("SAGEMAKER_SAFE_PORT_RANGE", "20000-20999", "--sagemaker-safe-port-range=20000-20999"),
    (TRITON + "ALLOW_GRPC", "true", "--allow-grpc=true"),
    (TRITON + "GRPC_PORT", "20001", "--grpc-port=20001"),
    (TRITON + "ALLOW_METRICS", "on", "--allow-metrics=on"),
    (TRITON + "METRICS_PORT", "20002", "--metrics-port=20002"),
    (TRITON + "LOG_VERBOSE", "true", "--log-verbose=true"),
    (TRITON + "LOG_VERBOSE", "2", "--log-verbose=2"),
    (TRITON + "LOG_INFO", "false", "--log-info=false"),
    (TRITON + "LOG_WARNING", "0", "--log-warning=0"),
    (TRITON + "LOG_ERROR", "off", "--log-error=off"),
    (TRITON + "CPU_FALLBACK", "true", "--cpu-fallback=true"),
]

WITHOUT_EFFECT = [
    "SAGEMAKER_TRITON_THREAD_COUNT",
    "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT",
    "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
    "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
    "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
    "SAGEMAKER_TRITON_BATCH_SIZE",
    "SAGEMAKER_TRITON_MAX_BATCH_DELAY",
    "SAGEMAKER_PROGRAM",
    "SAGEMAKER_SUBMIT_DIRECTORY",
    "SAGEMAKER_MODEL_SERVER_WORKERS",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",
    "SAGEMAKER_MODEL_SERVER_VMARGS",
    "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
    "SAGEMAKER_STARTUP_TIMEOUT",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB",
]


def refusal(name: str, value: str) -> str:
    """The one line that a value earns."""
    with pytest.raises(click.UsageError) as caught:
        read_environment({name: value})
    message = caught.value.format_message()
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("name", "value", "flag"), FLAGS)
def test_variable_becomes_its_flag(name: str, value: str, flag: str) -> None:
    environment = read_environment({name: value})

    assert environment.flags() == [flag]
    assert environment.remarks == []


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_variable_without_effect_is_remarked_on_once_and_says_why(name: str) -> None:
    environment = read_environment({name: "8"})

    assert environment.flags() == []
    [remark] = environment.remarks
    assert remark.startswith(f"{name} has no effect here. ")
    assert len(remark) > len(f"{name} has no effect here. ")


def test_every_variable_of_the_table_is_tested() -> None:
    read_in_place = {
        "SAGEMAKER_MULTI_MODEL",
        "SAGEMAKER_BASE_DIR",
        TRITON + "DEFAULT_MODEL_NAME",
        TRITON + "INFERENCE_TYPE",
        TRITON + "PING_MODE",
        TRITON + "OVERRIDE_PING_MODE",
        TRITON + "DISABLE_MODEL_NAMESPACING",
        TRITON + "MODEL_LOAD_GPU_LIMIT",
        TRITON + "ADDITIONAL_ARGS",
    }
    assert {each.name for each in VARIABLES} == {name for name, _, _ in FLAGS} | {
        *WITHOUT_EFFECT
    } | read_in_place
    assert {each.name for each in VARIABLES if not each.works} == {*WITHOUT_EFFECT}


def test_every_flag_of_the_table_is_one_of_the_server() -> None:
    flags = {flag for each in serve_command(lambda _options, _remarks: 0).params for flag in each.opts}
    assert {f"--{each.flag}" for each in VARIABLES if each.flag} <= flags


def test_empty_variable_is_as_none() -> None:
    environment = read_environment({each.name: "" for each in VARIABLES})

    assert environment.flags() == []
    assert environment.remarks == []
    assert environment.values == {}


def test_variables_of_others_are_left_alone() -> None:
    environment = read_environment(
        {"PATH": "/bin", "SAGEMAKER_REGION": "eu-west-1", "SAGEMAKER_BATCH": "true"}
    )

    assert environment.flags() == []
    assert environment.remarks == []


def test_mistyped_variable_is_remarked_on_with_the_nearest_name() -> None:
    environment = read_environment({TRITON + "DEFAULT_MODEL": "a", TRITON + "LOG_VERBOSITY": "1"})

    what = "is not known and has no effect; the nearest is"
    assert environment.remarks == [
        f"SAGEMAKER_TRITON_DEFAULT_MODEL {what} SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        f"SAGEMAKER_TRITON_LOG_VERBOSITY {what} SAGEMAKER_TRITON_LOG_VERBOSE",
    ]


@pytest.mark.parametrize(
    ("name", "value", "flags"),
    [
        (
            TRITON + "LOG_INFO",
            "false --load-model=helper --log-verbose=1",
            ["--log-info=false", "--load-model=helper", "--log-verbose=1"],
        ),
        (TRITON + "METRICS_PORT", "20002  --id x", ["--metrics-port=20002", "--id", "x"]),
        (TRITON + "THREAD_COUNT", "8 --load-model=helper", ["--load-model=helper"]),
    ],
)
def test_flags_behind_a_value_take_effect(name: str, value: str, flags: list[str]) -> None:
    assert read_environment({name: value}).flags() == flags


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (TRITON + "LOG_INFO", "false true"),
        (TRITON + "LOG_INFO", "   "),
        (TRITON + "LOG_INFO", "no --load-model=helper"),
        (TRITON + "INFERENCE_TYPE", "infer --load-model=helper"),
        (TRITON + "PING_MODE", "live --load-model=helper"),
        ("SAGEMAKER_BIND_TO_PORT", "8080 --load-model=helper"),
    ],
)
def test_words_behind_a_value_that_take_no_effect_are_refused(name: str, value: str) -> None:
    assert refusal(name, value).startswith(f"{name}: ")


def test_additional_arguments_are_split_as_a_shell_splits_them() -> None:
    text = """--log-verbose 1 --model-repository="/models of ours"  --id='a "b"'"""

    assert read_environment({TRITON + "ADDITIONAL_ARGS": text}).values == {
        TRITON + "ADDITIONAL_ARGS": ("--log-verbose", "1", "--model-repository=/models of ours", '--id=a "b"')
    }


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SAGEMAKER_BIND_TO_PORT", "http", "'http' is not a whole number"),
        ("SAGEMAKER_BIND_TO_PORT", "65536", "65536 is out of range; it must be from 0 to 65535"),
        (TRITON + "GRPC_PORT", "-1", "-1 is out of range; it must be from 0 to 65535"),
        (TRITON + "METRICS_PORT", "1.5", "'1.5' is not a whole number"),
        (TRITON + "ALLOW_GRPC", "yes", "'yes' is no boolean; write true, on, 1, false, off or 0"),
        (TRITON + "ALLOW_METRICS", "2", "'2' is no boolean; write true, on, 1, false, off or 0"),
        (TRITON + "LOG_INFO", "all", "'all' is no boolean; write true, on, 1, false, off or 0"),
        (TRITON + "LOG_VERBOSE", "very", "'very' is not a whole number"),
        (
            TRITON + "DISABLE_MODEL_NAMESPACING",
            "no",
            "'no' is no boolean; write true, on, 1, false, off or 0",
        ),
        (
            TRITON + "INFERENCE_TYPE",
            "stream",
            "'stream' is not one of 'infer', 'generate', 'generate_stream'",
        ),
        (TRITON + "PING_MODE", "alive", "'alive' is not one of 'ready', 'live'; did you mean 'live'?"),
        (TRITON + "OVERRIDE_PING_MODE", "Live", "'Live' is not one of 'ready', 'live'; did you mean 'live'?"),
        (TRITON + "MODEL_LOAD_GPU_LIMIT", "80", "'80' is not a share above 0 and up to 1"),
        (TRITON + "MODEL_LOAD_GPU_LIMIT", "nan", "'nan' is not a share above 0 and up to 1"),
        (TRITON + "MODEL_LOAD_GPU_LIMIT", "most", "'most' is not a number"),
    ],
)
def test_wrong_value_is_refused_with_its_variable(name: str, value: str, why: str) -> None:
    assert refusal(name, value) == f"{name}: {why}"


@pytest.mark.parametrize(
    "value", ["8000", "8000-", "-9000", "9000-8000", "1-70000", "a-b", "1-2-3", "8000:9000"]
)
def test_range_of_ports_that_is_none_is_refused(value: str) -> None:
    assert refusal("SAGEMAKER_SAFE_PORT_RANGE", value) == (
        f"SAGEMAKER_SAFE_PORT_RANGE: '{value}' is not a range of ports, the lower one first, such as 20000-20999"
    )


def test_broken_quote_in_additional_arguments_is_refused_and_not_repeated() -> None:
    assert refusal(TRITON + "ADDITIONAL_ARGS", "--id='a") == (
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS: cannot be split into flags as a shell would: no closing quotation"
    )


def test_the_page_about_the_environment_is_fresh() -> None:
    page = ROOT / "docs" / "sagemaker-environment.md"
    assert page.read_text() == environment_document(), "run `make docs`"
