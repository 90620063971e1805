"""`halimede tune` with real servers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from halimede.bench.address import parse
from halimede.bench.control import HttpControl
from halimede.cli.main import halimede
from halimede.config.model_config_pb2 import ModelConfig
from halimede.tune.knobs import KINDS, knobs_of, now
from halimede.tune.prepare import completed, targets
from halimede.tune.served import serving
from tests.support.onnx_models import identity, write_model
from tests.support.server import run_command

SLOW = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
instance_group { kind: KIND_CPU count: 1 }
parameters { key: "execute_delay_ms" value { string_value: "40" } }
"""
PIPELINE = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling { step { model_name: "slow" model_version: -1
  input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } }
"""
BROKEN = 'backend: "nothing" max_batch_size: 1'


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    for name, config in (("slow", SLOW), ("pipeline", PIPELINE), ("broken", BROKEN)):
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
    return directory


def test_an_ensemble_is_tuned_through_its_models_and_the_search_goes_on(
    repository: Path, tmp_path: Path
) -> None:
    """More instances serve more requests, each of which takes 40 ms."""
    study, page, output, found = (tmp_path / name for name in ("study", "page.html", "tuned", "found.json"))
    arguments = [
        "tune", "-m", "pipeline", "--model-repository", str(repository), "--goal", "most throughput at p99 <= 5s",
        "--vary", "instances", "--concurrency", "4", "-p", "250ms", "--study", str(study),
    ]  # fmt: skip
    first = run_command(*arguments, "--trials", "1", timeout=100)
    assert first.returncode == 0, first.stderr
    assert "Nothing better was found." in first.stdout
    assert "as it is" in first.stderr
    done = run_command(
        *arguments,
        "--trials",
        "3",
        "--html",
        str(page),
        "--json",
        str(found),
        "--output",
        str(output),
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "settings that were measured before" in done.stderr
    assert "# slow/config.pbtxt\ninstance_group {\n  count: " in done.stdout
    assert " times as good as without it" in done.stdout
    config = text_format.Parse((output / "slow.pbtxt").read_text(), ModelConfig())
    assert config.instance_group[0].count >= 2
    assert config.parameters["execute_delay_ms"].string_value == "40"
    [times] = [line for line in done.stdout.splitlines() if line.startswith("That is ")]
    assert float(times.split()[2]) > 1.5
    assert "Pareto front" in page.read_text()
    document = json.loads(found.read_text())
    assert document["after"]["best"]["throughput"] > 1.5 * document["before"]["best"]["throughput"]
    assert document["effects"][0]["knob"] == "instances:slow"
    assert (repository / "slow" / "config.pbtxt").read_text() == SLOW


def test_least_memory_at_a_rate(repository: Path, tmp_path: Path) -> None:
    done = run_command(
        "tune", "-m", "slow", "--model-repository", str(repository), "--goal", "least memory at 10 requests/s",
        "--vary", "instances", "--trials", "1", "-p", "400ms", "--study", str(tmp_path / "study"), timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| 10/s " in done.stdout
    assert " MB (10/s: " in done.stdout


def test_models_of_an_ensemble_and_further_ones_are_found(repository: Path) -> None:
    found = targets(repository, "pipeline", (), ())
    assert [target.name for target in found] == ["pipeline", "slow"]
    assert found[1].effective.instance_group[0].count == 1
    further = targets(repository, "slow", ("pipeline",), ())
    assert [target.name for target in further] == ["slow", "pipeline"]


AUTO_COMPLETED = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        raise NotImplementedError
"""


@pytest.mark.parametrize(("model", "largest"), [("network", 8), ("completing", 4)])
def test_every_choice_is_what_the_server_makes_of_the_configuration(
    tmp_path: Path, model: str, largest: int
) -> None:
    write_model(tmp_path, "network", identity())
    version = tmp_path / "completing" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(AUTO_COMPLETED)
    [target] = targets(tmp_path, model, (), ())
    knobs = knobs_of(target, 2, KINDS, ("cpu",), 8)
    assert target.effective.HasField("dynamic_batching")
    last = {knob.name: knob.choices[-1] for knob in knobs} | {f"max-batch:{model}": largest}
    settings = [last] + [now(knobs) | {knob.name: False} for knob in knobs if knob.kind == "batching"]
    for setting in settings:
        with serving(tmp_path, {model: target.changed(knobs, setting)}, [model], []) as server:
            made = completed(HttpControl(parse(server.http, 8000), {}), model)
        target.check(knobs, setting, made)


def test_a_tuned_copy_leaves_the_repository_alone(repository: Path) -> None:
    config = text_format.Parse(SLOW.replace("count: 1", "count: 3"), ModelConfig())
    with serving(repository, {"slow": config}, ["slow"], []) as server:
        assert server.memory_mb() > 10
        assert server.http != server.grpc
    assert (repository / "slow" / "config.pbtxt").read_text() == SLOW


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-m", "missing"], "has no model 'missing'; it has broken, pipeline, slow"),
        (["-m", "broken"], "The server does not start"),
        (["-m", "slow", "--goal", "speed"], "'speed' is no goal"),
        (["-m", "slow", "--vary", "colour"], "'colour' cannot be varied"),
        (["-m", "slow", "--vary", "threads"], "Nothing of model 'slow' can be varied by threads"),
        (["-m", "slow", "--", "--no-such-flag"], "no-such-flag"),
    ],
)
def test_wrong_input_is_named(repository: Path, tmp_path: Path, arguments: list[str], reason: str) -> None:
    command = ["tune", "--model-repository", str(repository), "--study", str(tmp_path / "study"), *arguments]
    done = CliRunner().invoke(halimede, command)
    assert done.exit_code in (1, 2)
    assert reason in done.output


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(halimede, ["tune", "-m", "x", "--model-repository", str(tmp_path / "none")])
    assert "there is no such directory" in done.output
