"""Every fix that `halimede check` suggests is applied, after which the problem is gone and the model loads."""

import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from halimede.cli.check.command import command
from halimede.config.model_config_pb2 import ModelConfig
from tests.support import onnx_models
from tests.support.ragged import SEGMENTS
from tests.support.server import ServerProcess, start_server

TENSORS = (
    'input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } '
    'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 } '
)
ECHO = f'backend: "onnxruntime" max_batch_size: 4 {TENSORS}'
STEP = (
    'ensemble_scheduling {{ step {{ model_name: "{model}" model_version: {version} '
    'input_map {{ key: "{key}" value: "{read}" }} output_map {{ key: "OUTPUT0" value: "{written}" }} }} }}'
)


def ensemble(
    model: str = "part",
    version: int = -1,
    key: str = "INPUT0",
    read: str = "INPUT0",
    written: str = "OUTPUT0",
) -> str:
    step = STEP.format(model=model, version=version, key=key, read=read, written=written)
    return f'platform: "ensemble" max_batch_size: 4 {TENSORS} {step}'


def group(text: str) -> str:
    return f"{ECHO} instance_group {{ {text} }}"


def batching(text: str) -> str:
    return f"{ECHO} dynamic_batching {{ {text} }}"


def metric(text: str) -> str:
    return f"{ECHO} model_metrics {{ metric_control {{ {text} }} }}"


FAMILY = 'metric_identifier { family: "nv_inference_first_response_histogram_ms" }'

CONFIGURATIONS = {
    "name": f'name: "other" {ECHO}',
    "unknown backend": ECHO.replace("onnxruntime", "onnxruntme"),
    "field": ECHO.replace("dims: 16", "\ndimms: 16\n", 1),
    "unknown platform": 'platform: "onnx_runtime_onnx"',
    "two batchers": f"{ECHO} dynamic_batching {{ }} sequence_batching {{ }}",
    "two strategies": f"{ECHO} sequence_batching {{ direct {{ }} oldest {{ max_candidate_sequences: 4 }} }}",
    "batch size": ECHO.replace("4", "-4"),
    "data type": ECHO.replace("data_type: TYPE_FP32", "", 1),
    "dims": ECHO.replace("dims: 16", "", 1),
    "zero in dims": ECHO.replace("dims: 16", "dims: 0", 1),
    "tensor without a name": ECHO.replace('name: "OUTPUT0"', ""),
    "name given twice": f'{ECHO} input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}',
    "format": ECHO.replace("dims: 16", "dims: 16 format: FORMAT_NHWC", 1),
    "reshape": ECHO.replace("dims: 16", "dims: 16 reshape { shape: [ 3 ] }", 1),
    "reshape with zero": ECHO.replace("dims: 16", "dims: -1 reshape { shape: [ 0 ] }", 1),
    "shape tensor": ECHO.replace("dims: 16", "dims: 16 is_shape_tensor: true", 1),
    "linear format": ECHO.replace("dims: 16", "dims: 16 is_non_linear_format_io: true", 1),
    "preferred size": batching("preferred_batch_size: [ 2, 8 ]"),
    "negative preferred size": batching("preferred_batch_size: [ -2, 2 ]"),
    "only a negative preferred size": batching("preferred_batch_size: [ -2 ]"),
    "default priority": batching("priority_levels: 2"),
    "priority of a policy": batching(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { max_queue_size: 1 } }"
    ),
    "order and priorities": batching("priority_levels: 2 default_priority_level: 1 preserve_ordering: true"),
    "order and delays": batching(
        "preserve_ordering: true "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }"
    ),
    "CPU with GPUs": group("kind: KIND_CPU gpus: [ 0 ]"),
    "GPU": group("kind: KIND_GPU"),
    "profile": group('profile: "0"'),
    "passive": group("passive: true"),
    "enumeration": group("kind: 77"),
    "metric without a family": metric("histogram_options { buckets: 1 }"),
    "metric with an empty family": metric("metric_identifier { } histogram_options { buckets: 1 }"),
    "metric without options": metric(FAMILY),
    "metric without buckets": metric(f"{FAMILY} histogram_options {{ }}"),
    "warm-up": (
        f'{ECHO} model_warmup {{ batch_size: 1 inputs {{ key: "INPUT0" value {{ data_type: TYPE_FP32 dims: -1 '
        "zero_data: true } } }"
    ),
    "cache": f"{ECHO} response_cache {{ enable: true }} model_transaction_policy {{ decoupled: true }}",
    "versions": f"{ECHO} version_policy {{ specific {{ versions: 7 }} }}",
    "no versions": f"{ECHO} version_policy {{ latest {{ num_versions: 0 }} }}",
    "unknown model": ensemble(model="prt"),
    "missing version": ensemble(version=4),
    "version left out": ensemble(version=0),
    "key of an input": ensemble(key="INPUTO"),
    "misspelt input": ensemble(read="INPT0"),
    "misspelt output": ensemble(written="OUTPT0"),
    "batch size of an ensemble": ensemble().replace("max_batch_size: 4", "max_batch_size: 64"),
    "datatype of an ensemble": ensemble().replace("TYPE_FP32", "TYPE_INT32"),
    "dims of an ensemble": ensemble().replace("dims: 16", "dims: 8"),
    "backend of an ensemble": ensemble().replace("platform:", 'backend: "identity" platform:'),
    "ensemble as backend": ensemble().replace("platform:", "backend:"),
    "instances of an ensemble": f"{ensemble()} instance_group {{ count: 2 }}",
    "warm-up of an ensemble": f"{ensemble()} model_warmup {{ batch_size: 1 }}",
    "optimization of an ensemble": f"{ensemble()} optimization {{ }}",
    "platform of an ensemble": ensemble().replace('platform: "ensemble"', ""),
}
SAMPLE = 'key: "INPUT0" value { data_type: TYPE_FP32 dims: 16 zero_data: true }'


def warm_up(text: str) -> str:
    return f"max_batch_size: 4 {TENSORS} model_warmup {{ name: 'w' batch_size: 1 inputs {{ {text} }} }}"


OF_ONNX = {
    "datatype": f"max_batch_size: 4 {TENSORS.replace('FP32', 'INT32', 1)}",
    "shape": f"max_batch_size: 4 {TENSORS.replace('16', '8', 1)}",
    "tensor": f"max_batch_size: 4 {TENSORS.replace('INPUT0', 'INPUT')}",
    "too many": f'max_batch_size: 4 {TENSORS} input {{ name: "INPUT1" data_type: TYPE_FP32 dims: 16 }}',
    "without batching": TENSORS,
    "other case": f"max_batch_size: 4 {TENSORS.replace('INPUT0', 'input0')}",
    "warm-up of a misspelt input": warm_up(SAMPLE.replace("INPUT0", "INPUTT0")),
    "warm-up of an input of another name": warm_up(SAMPLE.replace("INPUT0", "image")),
    "warm-up with another datatype": warm_up(SAMPLE.replace("FP32", "INT64")),
    "warm-up with another shape": warm_up(SAMPLE.replace("16", "8")),
    "warm-up without data": warm_up(SAMPLE.replace("zero_data: true", "")),
    "file that is not there": f'max_batch_size: 4 {TENSORS} default_model_filename: "network.onnx"',
    "file in another case": f'max_batch_size: 4 {TENSORS} default_model_filename: "Model.onnx"',
    "backend": f'backend: "pytorch" max_batch_size: 4 {TENSORS}',
    "unknown platform": 'platform: "onnx_runtime"',
}

RAGGED = """
    backend: "onnxruntime" max_batch_size: 4
    input { name: "RAGGED" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
    batch_input {
        kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO
        target_name: "OFFSETS" data_type: TYPE_FP32 source_input: "RAGGED"
    }
"""
COUNTS = 'batch_input { target_name: "COUNTS" data_type: TYPE_FP32 source_input: "RAGGED" }'
OF_RAGGED = {
    "source that is not ragged": RAGGED.replace("allow_ragged_batch: true", ""),
    "unknown source": RAGGED.replace('source_input: "RAGGED"', 'source_input: "RAGED"'),
    "no source": RAGGED.replace('source_input: "RAGGED"', ""),
    "unknown target": RAGGED.replace("OFFSETS", "OFSETS"),
    "one target too many": RAGGED + COUNTS,
    "datatype of another": RAGGED.replace(
        '"OFFSETS" data_type: TYPE_FP32', '"OFFSETS" data_type: TYPE_INT32'
    ),
    "datatype of none": RAGGED.replace('"OFFSETS" data_type: TYPE_FP32', '"OFFSETS" data_type: TYPE_INT64'),
    "rank": RAGGED.replace("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "BATCH_ITEM_SHAPE"),
    "source of an output": f'{RAGGED} batch_output {{ target_name: "OUTPUT" source_input: "RAGED" }}',
    "target of an output": f'{RAGGED} batch_output {{ target_name: "OUTPT" source_input: "RAGGED" }}',
    "sizes of an output": f'{RAGGED} batch_output {{ target_name: "OUTPUT" source_input: "RAGGED" }}'.replace(
        "dims: 1 }", "dims: [ 1, -1 ] }"
    ),
}


def problems(repository: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(command, ["--format", "json", str(repository)])
    found: list[dict[str, Any]] = json.loads(result.output)["problems"]
    return found


def apply(problem: dict[str, Any], directory: Path) -> None:
    """Do what the fix says, as a user would."""
    fix, path = problem["fix"], directory / "config.pbtxt"
    if moved := re.fullmatch(r"rename (\S+) to (\S+)", fix):
        Path(moved[1]).rename(moved[2])
        return
    if moved := re.fullmatch(r"make the directory (\S+) and move (\S+) into it", fix):
        Path(moved[1]).mkdir()
        shutil.move(directory / moved[2], moved[1])
        return
    if problem["field"] == "" and fix.startswith("remove "):
        unwanted = rf"{fix.removeprefix('remove ')}\s*{{[^{{}}]*}}"
        path.write_text(re.sub(unwanted, "", path.read_text()))
        return
    if problem["field"] == "" and problem["line"]:
        lines = path.read_text().split("\n")
        wrong = re.search(r"'(\w+)' is not a field", problem["message"])
        assert wrong is not None
        lines[problem["line"] - 1] = re.sub(rf"{wrong[1]}: \S+", fix, lines[problem["line"] - 1])
        path.write_text("\n".join(lines))
        return
    config = text_format.Parse(path.read_text() if path.exists() else "", ModelConfig())
    if replaced := re.fullmatch(r"replace (\w+) by (.*)", fix):
        config.ClearField(replaced[1])
        text_format.Merge(replaced[2], config)
    elif fix.startswith("remove "):
        _remove(config, problem["field"], fix.removeprefix("remove ").split()[0])
    else:
        _set(config, problem["field"], fix)
    path.write_text(text_format.MessageToString(config))


def _parent(config: ModelConfig, field: str) -> tuple[Any, str, str]:
    """The message that holds a field, the field's name and the index or key behind it."""
    parts = re.findall(r'(\w+)(?:\[("[^"]*"|\d+)\])?', field)
    message: Any = config
    for name, index in parts[:-1]:
        message = getattr(message, name)
        if index:
            message = message[_key(index)]
    return message, *parts[-1]


def _key(text: str) -> str | int:
    return text.strip('"') if text.startswith('"') else int(text)


def _remove(config: ModelConfig, field: str, name: str) -> None:
    parent, last, index = _parent(config, field)
    assert last == name
    if index:
        del getattr(parent, last)[_key(index)]
    else:
        parent.ClearField(last)


def _set(config: ModelConfig, field: str, fix: str) -> None:
    parent, last, index = _parent(config, field)
    for owner in (parent, config):
        try:
            new = text_format.Parse(fix, type(owner)())
        except text_format.ParseError:
            continue
        break
    else:
        pytest.fail(f"the fix is nothing that a configuration can have: {fix}")
    first = re.findall(r"\w+", fix)[0]
    if not owner.DESCRIPTOR.fields_by_name[first].is_repeated:
        owner.ClearField(first)  # a value that is the default is not among the new ones
    for descriptor, value in new.ListFields():
        name = descriptor.name
        if name == last and index and descriptor.message_type is not None:
            entries = getattr(owner, name)
            if descriptor.message_type.GetOptions().map_entry:
                del entries[_key(index)]
            else:
                entries[_key(index)].CopyFrom(value[0])
                return
        elif not (descriptor.is_repeated and descriptor.message_type is not None):
            owner.ClearField(name)
    owner.MergeFrom(new)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    repository = tmp_path_factory.mktemp("served")
    with start_server(repository, "--model-control-mode=explicit") as running:
        yield running, repository


def loads(server: tuple[ServerProcess, Path], repository: Path, name: str) -> None:
    """Have a server load the model, together with those that it needs."""
    running, served = server
    shutil.copytree(repository, served, dirs_exist_ok=True)
    try:
        url = f"http://{running.http}/v2/repository/models/{name}/load"
        with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST")) as answer:
            assert answer.status == 200
    except urllib.error.HTTPError as error:
        pytest.fail(error.read().decode())
    finally:
        for each in served.iterdir():
            shutil.rmtree(each)


def mend(repository: Path, directory: Path) -> None:
    """Apply all fixes, and those of what then comes to light; each problem must be gone when it has been fixed."""
    found = problems(repository)
    assert found
    for _ in range(3):
        fixed = {(each["field"], each["message"]) for each in found}
        for problem in found:
            assert problem["fix"], problem
            apply(problem, directory)
        found = problems(repository)
        assert fixed.isdisjoint((each["field"], each["message"]) for each in found), found
        if not found:
            return
    pytest.fail(f"there is still something wrong: {found}")


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_fixes_of_configurations(
    tmp_path: Path, server: tuple[ServerProcess, Path], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = CONFIGURATIONS[what]
    onnx_models.write_model(tmp_path, "part", onnx_models.identity(), f"max_batch_size: 4 {TENSORS}")
    model = None if "ensemble_scheduling" in text else onnx_models.identity()
    name = f"m{list(CONFIGURATIONS).index(what)}"
    directory = onnx_models.write_model(tmp_path, name, model, text)
    mend(tmp_path, directory)
    loads(server, tmp_path, name)


@pytest.mark.parametrize("what", OF_ONNX)
def test_fixes_of_what_contradicts_the_model(
    tmp_path: Path, server: tuple[ServerProcess, Path], what: str
) -> None:
    name = f"onnx{list(OF_ONNX).index(what)}"
    directory = onnx_models.write_model(tmp_path, name, onnx_models.identity(), OF_ONNX[what])
    mend(tmp_path, directory)
    loads(server, tmp_path, name)


def test_a_mistake_that_all_versions_share_is_told_once(tmp_path: Path) -> None:
    text = 'backend: "onnxruntime" ' + OF_ONNX["file that is not there"] + " version_policy { all { } }"
    for version in (1, 2, 3):
        onnx_models.write_model(tmp_path, "m", onnx_models.identity(), text, version)
    [problem] = problems(tmp_path)
    assert (problem["field"], problem["fix"]) == (
        "default_model_filename",
        'default_model_filename: "model.onnx"',
    )


def test_a_misspelt_file_of_a_python_model_is_found(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (version / "network.py").write_text("class TritonPythonModel:\n    pass\n")
    (tmp_path / "m" / "config.pbtxt").write_text(
        f'backend: "python" default_model_filename: "netwrk.py" {TENSORS}'
    )
    [problem] = problems(tmp_path)
    assert problem["fix"] == 'default_model_filename: "network.py"'


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ("dims: 16", "data_type"),
        ("data_type: TYPE_INT64", "dims"),
        ("", "data_type"),
    ],
)
def test_what_a_tensor_lacks_is_taken_from_the_model(tmp_path: Path, given: str, lacks: str) -> None:
    text = (
        f'backend: "onnxruntime" max_batch_size: 4 input {{ name: "INPUT0" {given} }} '
        'output { name: "OUTPUT0" data_type: TYPE_INT64 dims: 16 }'
    )
    onnx_models.write_model(tmp_path, "m", onnx_models.identity(onnx_models.INT64), text)
    [problem] = problems(tmp_path)
    assert problem["message"] == f"model input 'INPUT0' must specify '{lacks}' for m"
    assert problem["fix"] == 'input { name: "INPUT0" data_type: TYPE_INT64 dims: [16] }'


def test_a_tensor_of_an_unknown_name_is_the_one_most_like_it(tmp_path: Path) -> None:
    """Not the first one that the configuration lacks, which may have another datatype."""
    kinds = {"input_ids": onnx_models.INT64, "attention_mask": onnx_models.FLOAT}
    nodes = [onnx.helper.make_node("Identity", [name], [f"{name}_out"]) for name in kinds]
    model = onnx_models.build(
        nodes,
        {name: (kind, [1]) for name, kind in kinds.items()},
        {f"{name}_out": (kind, [1]) for name, kind in kinds.items()},
    )
    text = (
        'backend: "onnxruntime" input { name: "atention_mask" data_type: TYPE_FP32 dims: 1 } '
        'input { name: "ids" data_type: TYPE_INT64 dims: 1 }'
    )
    onnx_models.write_model(tmp_path, "m", model, text)
    assert [each["fix"] for each in problems(tmp_path)] == [
        'input { name: "attention_mask" data_type: TYPE_FP32 dims: [1] }',
        'input { name: "input_ids" data_type: TYPE_INT64 dims: [1] }',
    ]


@pytest.mark.parametrize("what", OF_RAGGED)
def test_fixes_of_ragged_models(tmp_path: Path, server: tuple[ServerProcess, Path], what: str) -> None:
    name = f"ragged{list(OF_RAGGED).index(what)}"
    directory = onnx_models.write_model(tmp_path, name, onnx_models.ragged_sum(), OF_RAGGED[what])
    mend(tmp_path, directory)
    loads(server, tmp_path, name)


def test_a_ragged_model_may_leave_its_outputs_to_the_file(
    tmp_path: Path, server: tuple[ServerProcess, Path]
) -> None:
    text = re.sub("(?<!_)output {.*?}", "", SEGMENTS)
    onnx_models.write_model(tmp_path, "unlisted", onnx_models.segments(), f'backend: "onnxruntime" {text}')
    assert problems(tmp_path) == []
    loads(server, tmp_path, "unlisted")


@pytest.mark.parametrize("place", ["", "007/", "v1/"])
def test_fixes_of_files_in_the_wrong_place(
    tmp_path: Path, server: tuple[ServerProcess, Path], place: str
) -> None:
    name = f"place{place.strip('/')}"
    directory = onnx_models.write_model(tmp_path, name, onnx_models.identity())
    (directory / place).mkdir(exist_ok=True)
    (directory / "1" / "model.onnx").rename(directory / place / "model.onnx")
    (directory / "1").rmdir()
    mend(tmp_path, directory)
    loads(server, tmp_path, name)


def test_fixes_of_several_models_in_one_directory(tmp_path: Path, server: tuple[ServerProcess, Path]) -> None:
    directory = onnx_models.write_model(tmp_path, "several", onnx_models.identity())
    shutil.copy(directory / "1" / "model.onnx", directory / "1" / "a.onnx")
    (directory / "1" / "model.onnx").rename(directory / "1" / "b.onnx")
    mend(tmp_path, directory)
    loads(server, tmp_path, "several")
