"""`halimede sagemaker-serve`: which server the environment asks for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from halimede import __version__
from halimede.cli.sagemaker.command import Plan, plan
from tests.support.commands import call_text_command
from tests.support.server import run_command

MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
DEFAULT_MODEL_NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
INFERENCE_TYPE = "SAGEMAKER_TRITON_INFERENCE_TYPE"
PING_MODE = "SAGEMAKER_TRITON_PING_MODE"
OVERRIDE_PING_MODE = "SAGEMAKER_TRITON_OVERRIDE_PING_MODE"

ALWAYS = [
    "--allow-sagemaker=true",
    "--allow-http=false",
    "--allow-grpc=false",
    "--allow-metrics=false",
    "--model-control-mode=explicit",
    "--backend-config=python,requirement-sources=configured",
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """What stands for /opt/ml, with one model."""
    model = tmp_path / "ml" / "model" / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "identity"')
    return tmp_path / "ml"


def planned(base: Path, variables: dict[str, str], gpus: int = 0) -> Plan:
    """What the variables plan, with that base directory."""

    def scratch() -> Path:
        path = base / "scratch"
        path.mkdir()
        return path

    return plan({"SAGEMAKER_BASE_DIR": str(base), **variables}, scratch, gpus)


def refusal(base: Path, variables: dict[str, str]) -> str:
    with pytest.raises(click.UsageError) as caught:
        planned(base, variables)
    return caught.value.format_message()


def run_serve(variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What the command wrote, and its exit status, with those variables and none of the platform's own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
    return call_text_command("sagemaker-serve", *arguments, environment={**others, **variables})


def test_without_variables_the_only_model_is_served(base: Path) -> None:
    one = planned(base, {})

    assert one.flags == [*ALWAYS, f"--model-repository={base / 'model'}", "--load-model=echo"]
    assert one.environment == {DEFAULT_MODEL_NAME: "echo", INFERENCE_TYPE: "infer", PING_MODE: "ready"}
    assert one.remarks == [
        f"No {DEFAULT_MODEL_NAME} provided. Starting with the only existing model directory echo"
    ]
    assert one.what == f"one model, 'echo' of {base / 'model'}; /ping tells whether the server is ready"
    assert not (base / "scratch").exists()


def test_named_model_is_loaded_and_answers_invocations(base: Path) -> None:
    (base / "model" / "other").mkdir()

    one = planned(base, {DEFAULT_MODEL_NAME: "other"})

    assert one.flags[-1] == "--load-model=other"
    assert one.environment[DEFAULT_MODEL_NAME] == "other"
    assert one.remarks == []


def test_base_directory_is_the_platforms_unless_another_is_named() -> None:
    with pytest.raises(click.UsageError) as caught:
        plan({}, lambda: pytest.fail("nothing is needed"))
    # the platform's directory is not there where tests run
    assert caught.value.format_message().startswith("'/opt/ml/model' does not exist; ")


def test_relative_base_directory_is_made_absolute(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base.parent)

    assert f"--model-repository={base / 'model'}" in planned(Path("ml"), {}).flags


def test_variables_go_before_what_holds_without_them(base: Path) -> None:
    one = planned(base, {"SAGEMAKER_TRITON_ALLOW_GRPC": "true", "SAGEMAKER_TRITON_GRPC_PORT": "0"})

    assert one.flags[-2:] == ["--allow-grpc=true", "--grpc-port=0"]


def test_additional_arguments_come_last(base: Path) -> None:
    variables = {
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--log-verbose=2 --id x",
        "SAGEMAKER_TRITON_LOG_VERBOSE": "1",
    }

    assert planned(base, variables).flags[-4:] == ["--log-verbose=1", "--log-verbose=2", "--id", "x"]


def test_many_models_are_served_from_an_empty_repository(base: Path) -> None:
    many = planned(base, {MULTI_MODEL: "true", "SAGEMAKER_BIND_TO_PORT": "9000"})

    assert many.flags == [
        *ALWAYS,
        f"--model-repository={base / 'scratch'}",
        f"--sagemaker-model-directory={base / 'models'}",
        "--sagemaker-port=9000",
    ]
    assert list((base / "scratch").iterdir()) == []
    assert many.environment == {INFERENCE_TYPE: "infer", PING_MODE: "live"}
    assert many.remarks == []
    assert many.what == f"many models, from below {base / 'models'}; /ping tells whether the server is live"


@pytest.mark.parametrize("value", ["True", "TRUE", "1", "on", "yes"])
def test_only_true_in_lower_case_serves_many_models(base: Path, value: str) -> None:
    one = planned(base, {MULTI_MODEL: value, DEFAULT_MODEL_NAME: "echo"})

    assert "--load-model=echo" in one.flags
    assert one.remarks == [
        f"SAGEMAKER_MULTI_MODEL is '{value}': serving a single model, since only 'true' asks for many"
    ]


@pytest.mark.parametrize("value", ["false", "False", ""])
def test_false_serves_one_model_without_a_remark(base: Path, value: str) -> None:
    assert planned(base, {MULTI_MODEL: value, DEFAULT_MODEL_NAME: "echo"}).remarks == []


@pytest.mark.parametrize(
    ("variables", "mode"),
    [
        ({}, "ready"),
        ({PING_MODE: "live"}, "live"),
        ({OVERRIDE_PING_MODE: "live"}, "live"),
        ({OVERRIDE_PING_MODE: "ready", PING_MODE: "live"}, "ready"),
        ({MULTI_MODEL: "true"}, "live"),
        ({MULTI_MODEL: "true", PING_MODE: "ready"}, "ready"),
        ({MULTI_MODEL: "true", OVERRIDE_PING_MODE: "ready"}, "ready"),
        ({MULTI_MODEL: "true", OVERRIDE_PING_MODE: "live", PING_MODE: "ready"}, "live"),
    ],
)
def test_ping_mode_reaches_the_server(base: Path, variables: dict[str, str], mode: str) -> None:
    assert planned(base, variables).environment[PING_MODE] == mode


@pytest.mark.parametrize("kind", ["infer", "generate", "generate_stream"])
def test_inference_type_reaches_the_server(base: Path, kind: str) -> None:
    assert planned(base, {INFERENCE_TYPE: kind}).environment[INFERENCE_TYPE] == kind


def test_name_of_a_model_is_remarked_on_where_the_platform_loads_them(base: Path) -> None:
    many = planned(base, {MULTI_MODEL: "true", DEFAULT_MODEL_NAME: "echo"})

    assert not [flag for flag in many.flags if flag.startswith("--load-model")]
    assert many.remarks == [
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME has no effect here. In multi-model mode the platform loads the models."
    ]


@pytest.mark.parametrize(("value", "remarks"), [("false", 1), ("off", 1), ("0", 1), ("true", 0), ("on", 0)])
def test_equal_names_in_archives_stay_apart_whatever_the_variable_says(
    base: Path, value: str, remarks: int
) -> None:
    many = planned(base, {MULTI_MODEL: "true", "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING": value})

    assert not [flag for flag in many.flags if "namespacing" in flag]
    assert len(many.remarks) == remarks
    assert all("they stay apart here" in remark for remark in many.remarks)


def test_gpu_limit_goes_to_each_gpu(base: Path) -> None:
    one = planned(base, {"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.8"}, gpus=2)

    assert one.flags[-2:] == ["--model-load-gpu-limit=0:0.8", "--model-load-gpu-limit=1:0.8"]


def test_gpu_limit_without_a_gpu_is_remarked_on(base: Path) -> None:
    one = planned(base, {"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.8", DEFAULT_MODEL_NAME: "echo"})

    assert not [flag for flag in one.flags if "gpu-limit" in flag]
    assert one.remarks == ["SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT has no effect here. There is no GPU."]


def test_error_comes_with_the_mistyped_name_that_may_be_why(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "model" / "other").mkdir()

    assert "More than 1 model directory found" in refusal(base, {"SAGEMAKER_TRITON_DEFAULT_MODEL": "echo"})
    assert capsys.readouterr().err == (
        "halimede: warning: SAGEMAKER_TRITON_DEFAULT_MODEL is not known and has no effect; "
        "the nearest is SAGEMAKER_TRITON_DEFAULT_MODEL_NAME\n"
    )


def test_directory_that_may_not_be_read_is_an_error(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # whoever runs the tests as root may read everything
    monkeypatch.setattr(Path, "iterdir", refuse)

    assert refusal(base, {}) == f"'{base / 'model'}' cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"SAGEMAKER_BIND_TO_PORT": "no"}, "SAGEMAKER_BIND_TO_PORT: 'no' is not a whole number"),
        (
            {DEFAULT_MODEL_NAME: "no"},
            f"Directory with provided {DEFAULT_MODEL_NAME} no does not exist: '.*' holds 'echo'",
        ),
        ({"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--no=1"}, "unknown flag --no; the nearest is --.*"),
        ({"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "'"}, "SAGEMAKER_TRITON_ADDITIONAL_ARGS: cannot be split .*"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(base: Path, variables: dict[str, str], error: str) -> None:
    done = run_serve({"SAGEMAKER_BASE_DIR": str(base), **variables})

    assert done.returncode == 2
    assert re.fullmatch(f"halimede: {error}\n", done.stderr)


def test_without_a_place_for_temporary_files_many_models_cannot_be_served(base: Path) -> None:
    # whoever runs the tests as root may write everywhere
    script = "import tempfile; tempfile._candidate_tempdir_list = list\n"
    script += "from halimede.cli.main import main; main(['sagemaker-serve'])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, MULTI_MODEL: "true", "SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert re.fullmatch(
        "halimede: cannot make a temporary directory: .*; TMPDIR may name a directory .*\n", done.stderr
    )


def test_arguments_are_refused_since_there_are_none() -> None:
    done = run_serve({}, "--port=8080")

    assert done.returncode == 2
    assert re.fullmatch(r"halimede: No such option.*--port.*\n", done.stderr)


def test_version_is_that_of_the_package() -> None:
    assert run_serve({}, "--version").stdout == f"halimede, version {__version__}\n"


def test_help_says_where_the_settings_are() -> None:
    done = run_serve({}, "--help")

    assert done.returncode == 0
    assert "SAGEMAKER_BASE_DIR" in done.stdout


def test_the_command_is_one_of_halimede() -> None:
    done = run_command("sagemaker-serve", "--help")

    assert done.returncode == 0
    assert done.stdout.startswith("Usage: halimede sagemaker-serve")
    assert "SAGEMAKER_BASE_DIR" in done.stdout
