from dataclasses import replace
from pathlib import Path

import pytest

from halimede.cli.options import ServeOptions
from halimede.cli.process import engine_settings, options_table
from halimede.engine.settings import ControlMode

OPTIONS = ServeOptions(model_repository=("b", "a", "b"))


def test_repositories_are_a_sorted_set() -> None:
    assert engine_settings(OPTIONS).model_repositories == (Path("a"), Path("b"))


def test_flags_reach_the_engine() -> None:
    settings = engine_settings(
        replace(
            OPTIONS,
            model_control_mode="explicit",
            load_model=("x", "y", "x"),
            model_load_thread_count=2,
            model_load_retry_count=3,
            model_config_name="custom",
            strict_readiness=False,
            repository_poll_secs=7,
            model_memory_budget="1MiB",
            ondemand_timeout_secs=11,
            backend_config=("onnxruntime,threads=2",),
            log_verbose=1,
        )
    )
    assert settings.control_mode is ControlMode.EXPLICIT
    assert settings.load_models == ("x", "y")
    assert (settings.load_threads, settings.load_retry_count) == (2, 3)
    assert settings.model_config_name == "custom"
    assert not settings.strict_readiness
    assert settings.repository_poll_secs == 7
    assert (settings.model_memory_budget, settings.ondemand_timeout_secs) == (1 << 20, 11)
    assert settings.backend_settings("onnxruntime") == {"default-max-batch-size": "4", "threads": "2"}
    assert settings.verbose == 1


@pytest.mark.parametrize(
    ("strict", "disabled", "completes"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_either_flag_stops_auto_completion(strict: bool, disabled: bool, completes: bool) -> None:
    options = replace(OPTIONS, strict_model_config=strict, disable_auto_complete_config=disabled)
    assert engine_settings(options).auto_complete_config is completes


def test_the_table_of_options_shows_what_differs_from_the_defaults() -> None:
    table = options_table(replace(OPTIONS, http_port=9000, strict_readiness=False))
    assert "| model-repository | b, a, b |" in table
    assert "| http-port        | 9000    |" in table
    assert "| strict-readiness | false   |" in table
    assert "grpc-port" not in table
