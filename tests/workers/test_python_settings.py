import logging

import pytest

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, UnsupportedError
from halimede.workers.python_settings import PythonSettings, check_backend_settings, finalize_seconds


def config(**parameters: str) -> ModelConfig:
    made = ModelConfig(name="m")
    for name, value in parameters.items():
        made.parameters[name].string_value = value
    return made


def test_nothing_set_means_no_limit_and_one_execution_at_a_time() -> None:
    assert PythonSettings.read(config(), {}) == PythonSettings(
        execution_timeout_s=0, slow_s=30, concurrency=1, strict=False
    )


def test_the_parameter_of_the_model_goes_before_the_setting_of_the_backend() -> None:
    settings = {"execution-timeout-seconds": "5"}
    assert PythonSettings.read(config(), settings).execution_timeout_s == 5
    assert PythonSettings.read(config(EXECUTION_TIMEOUT_SECONDS="0.5"), settings).execution_timeout_s == 0.5
    settings = {"slow-execution-seconds": "5"}
    assert PythonSettings.read(config(), settings).slow_s == 5
    assert PythonSettings.read(config(SLOW_EXECUTION_SECONDS="0"), settings).slow_s == 0


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"EXECUTION_TIMEOUT_SECONDS": "soon"}, "a number of seconds, 0 for no limit; got 'soon'"),
        ({"EXECUTION_TIMEOUT_SECONDS": "-1"}, "model 'm': the parameter EXECUTION_TIMEOUT_SECONDS must be"),
        ({"EXECUTION_TIMEOUT_SECONDS": "nan"}, "got 'nan'"),
        ({"SLOW_EXECUTION_SECONDS": "-1"}, "model 'm': the parameter SLOW_EXECUTION_SECONDS must be"),
        ({"MAX_CONCURRENT_EXECUTIONS": "0"}, "a number from 1 to 1024; got '0'"),
        ({"strict": "yes"}, "model 'm': parameter 'strict' must be one of 'true', 'false', got 'yes'"),
        ({"MAX_CONCURRENT_EXECUTIONS": "many"}, "a number from 1 to 1024; got 'many'"),
    ],
)
def test_wrong_parameter_is_named_with_what_would_be_right(parameters: dict[str, str], text: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        PythonSettings.read(config(**parameters), {})
    assert text in caught.value.message


@pytest.mark.parametrize("value", ["maybe", "YES", ""])
def test_inputs_on_the_cpu_are_asked_for_with_yes_or_no(value: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        PythonSettings.read(config(FORCE_CPU_ONLY_INPUT_TENSORS=value), {})
    assert caught.value.message == f"Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: {value}'"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("shm-default-byte-size", "1000", "shm-default-byte-size can't be smaller than 4 MiBs"),
        ("shm-growth-byte-size", "0", "shm-growth-byte-size can't be smaller than or equal to zero."),
        ("shm-growth-byte-size", "big", "must be a whole number; got 'big'"),
        ("thread-pool-size", "0", "must be at least 1; got '0'"),
        ("shm-region-prefix-name", "", "shm-region-prefix-name must not be empty"),
        ("stub-timeout-seconds", "x", "stub-timeout-seconds must be a number of seconds"),
        ("install-requirements", "perhaps", "must be true or false; got 'perhaps'"),
        ("requirement-sources", "all", "must be any or configured; got 'all'"),
    ],
)
def test_wrong_backend_setting_is_refused(name: str, value: str, text: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        check_backend_settings({name: value})
    assert text in caught.value.message


def test_setting_with_nothing_to_act_on_is_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "halimede"):
        check_backend_settings({"shm-default-byte-size": "4194304", "stub-timeout-seconds": "3"})
    assert [record.getMessage()[:58] for record in caplog.records] == [
        "--backend-config=python,shm-default-byte-size changes noth"
    ]


def test_time_to_finalize() -> None:
    assert finalize_seconds({}) == 30
    assert finalize_seconds({"stub-timeout-seconds": "2.5"}) == 2.5
