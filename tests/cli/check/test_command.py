"""`halimede check`, as a user runs it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from halimede.cli.check.command import command
from tests.python_models.support import FLOATS, answering, python_model
from tests.support import onnx_models


def check(*arguments: object) -> tuple[int, str]:
    """Exit code and output."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def problems(*arguments: object) -> list[dict[str, object]]:
    code, output = check("--format", "json", *arguments)
    found = json.loads(output)["problems"]
    assert code == (1 if found else 0)
    return found  # type: ignore[no-any-return] # json's result is untyped


def test_sound_repository_is_told_as_a_table(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "auto", onnx_models.identity())
    onnx_models.write_model(tmp_path, "auto", onnx_models.identity(), version=3)
    onnx_models.write_model(
        tmp_path,
        "echo",
        None,
        'backend: "identity" version_policy { all { } } input { name: "INPUT0" data_type: TYPE_STRING dims: -1 } '
        'output { name: "OUTPUT0" data_type: TYPE_STRING dims: -1 }',
    )
    assert check(tmp_path) == (
        0,
        """\
+-------+-------------+----------+-----------+---------------------+----------------------+
| Model | Backend     | Versions | Max batch | Inputs              | Outputs              |
+-------+-------------+----------+-----------+---------------------+----------------------+
| auto  | onnxruntime | 3        | 4         | INPUT0 FP32[-1, 16] | OUTPUT0 FP32[-1, 16] |
| echo  | identity    | 1        | 0         | INPUT0 BYTES[-1]    | OUTPUT0 BYTES[-1]    |
+-------+-------------+----------+-----------+---------------------+----------------------+
2 models, no problems
""",
    )


def test_every_problem_of_every_model_is_told_at_once(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "good", onnx_models.identity())
    onnx_models.write_model(
        tmp_path,
        "a",
        onnx_models.identity(),
        "max_batch_size: 4\n"
        "input {\n"
        '  name: "INPUT0"\n'
        "  dims: [ 0 ]\n"
        "}\n"
        "dynamic_batching {\n"
        "  preferred_batch_size: [ 8 ]\n"
        "}\n",
    )
    onnx_models.write_model(tmp_path, "b", onnx_models.identity(), "input {\n  datatype: TYPE_FP32\n}")
    config_a, config_b = tmp_path / "a" / "config.pbtxt", tmp_path / "b" / "config.pbtxt"
    assert check(tmp_path) == (
        1,
        (
            f"{config_a}:7: dynamic batching preferred size must be <= max batch size for a "
            "[dynamic_batching.preferred_batch_size]\n"
            "    fix: max_batch_size: 8\n"
            f"{config_a}:2: model input 'INPUT0' must specify 'data_type' for a [input[0].data_type]\n"
            "    fix: data_type: TYPE_FP32\n"
            f"{config_a}:4: model input 'INPUT0' dimension must be integer >= 1, or -1 to indicate a variable-size "
            "dimension for a [input[0].dims]\n"
            "    fix: dims: [ -1 ]\n"
            f"{config_b}:2: failed to read text proto from {config_b}: line 2, column 3: 'datatype' is not a field of "
            "ModelInput; did you mean 'data_type'?\n"
            "    fix: data_type: TYPE_FP32\n"
            "4 problems in 2 of 3 models\n"
        ),
    )


def test_json_form_tells_models_and_problems(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m", onnx_models.identity())
    directory = onnx_models.write_model(tmp_path, "n", None, 'backend: "identity"\nmax_batch_size: -1')
    code, output = check(tmp_path, "--format", "json")
    assert code == 1
    assert json.loads(output) == {
        "models": [
            {
                "name": "m",
                "directory": str(tmp_path / "m"),
                "backend": "onnxruntime",
                "versions": [1],
                "max_batch_size": 4,
                "problems": 0,
                "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]}],
                "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 16]}],
            },
            {
                "name": "n",
                "directory": str(directory),
                "backend": "identity",
                "versions": [1],
                "max_batch_size": -1,
                "problems": 1,
            },
        ],
        "problems": [
            {
                "model": "n",
                "file": str(directory / "config.pbtxt"),
                "line": 2,
                "field": "max_batch_size",
                "message": "'max_batch_size' must be non-negative value for n",
                "fix": "max_batch_size: 0",
            }
        ],
        "warnings": [],
    }


def test_contradictions_between_model_and_config_are_all_told_with_the_models_own_lines(
    tmp_path: Path,
) -> None:
    onnx_models.write_model(
        tmp_path,
        "m",
        onnx_models.identity(count=2),
        "max_batch_size: 8\n"
        'input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }\n'
        'input { name: "INPUTX" data_type: TYPE_FP32 dims: 16 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }\n',
    )
    found = problems(tmp_path)
    assert [(each["line"], each["field"], each["fix"]) for each in found] == [
        (2, "input[0]", 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [16] }'),
        (3, "input[1]", 'input { name: "INPUT1" data_type: TYPE_FP32 dims: [16] }'),
        (4, "output[0]", 'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [16] }'),
    ]
    assert "configuration expects datatype TYPE_INT32 for input 'INPUT0'" in str(found[0]["message"])


@pytest.mark.parametrize(
    ("inputs", "field", "fix"),
    [
        (
            'input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }',
            "input",
            'input { name: "INPUT1" data_type: TYPE_FP32 dims: [16] }',
        ),
        (
            (
                'input [ { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }, '
                '{ name: "INPUT1" data_type: TYPE_FP32 dims: 16 }, { name: "INPUT2" data_type: TYPE_FP32 dims: 16 } ]'
            ),
            "input[2]",
            'remove input { name: "INPUT2" data_type: TYPE_FP32 dims: [16] }',
        ),
    ],
)
def test_wrong_number_of_inputs_is_mended_by_name(tmp_path: Path, inputs: str, field: str, fix: str) -> None:
    output = 'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }'
    onnx_models.write_model(
        tmp_path, "m", onnx_models.identity(count=2), f"max_batch_size: 2 {inputs} {output}"
    )
    (found,) = problems(tmp_path)
    assert (found["field"], found["fix"]) == (field, fix)


@pytest.mark.parametrize(
    "tensors",
    [
        "",
        (
            'input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } '
            'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }'
        ),
    ],
)
def test_batching_that_the_model_cannot_do_is_told(tmp_path: Path, tensors: str) -> None:
    model = onnx_models.identity(batching=False)
    onnx_models.write_model(tmp_path, "m", model, f"max_batch_size: 8 {tensors}")
    (found,) = problems(tmp_path)
    assert (found["line"], found["field"], found["fix"]) == (1, "max_batch_size", "max_batch_size: 0")


def test_dims_without_the_batch_dimension_are_told_for_a_config_without_batching(tmp_path: Path) -> None:
    config = (
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } '
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 16 ] }'
    )
    onnx_models.write_model(tmp_path, "m", onnx_models.identity(), config)
    (found,) = problems(tmp_path)
    assert found["fix"] == 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1, 16] }'


def test_missing_and_broken_model_files_are_told(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "broken", None)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    onnx_models.write_model(tmp_path, "missing", None, 'backend: "onnxruntime"')
    found = problems(tmp_path)
    assert [(each["model"], each["file"]) for each in found] == [
        ("broken", str(tmp_path / "broken" / "1")),
        ("missing", str(tmp_path / "missing" / "1")),
    ]


def test_missing_files_and_versions_are_told(tmp_path: Path) -> None:
    directory = onnx_models.write_model(
        tmp_path,
        "m",
        onnx_models.identity(),
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 label_filename: "labels.txt" }\n'
        "max_batch_size: 4\n"
        'model_warmup { batch_size: 1 inputs { key: "INPUT0" value {\n'
        '  data_type: TYPE_FP32 dims: 16 input_data_file: "../x" } } }\n'
        'model_warmup { batch_size: 1 inputs { key: "INPUT0" value {\n'
        '  data_type: TYPE_FP32 dims: 16 input_data_file: "x" } } }\n'
        "version_policy { specific { versions: 7 } }\n",
    )
    found = problems(tmp_path)
    assert [(each["file"], each["line"], each["fix"]) for each in found] == [
        (str(directory / "config.pbtxt"), 1, f"put the file at {directory / 'labels.txt'}"),
        (str(directory / "config.pbtxt"), 4, ""),
        (str(directory / "config.pbtxt"), 6, f"put the file at {directory / 'warmup' / 'x'}"),
        (str(directory / "config.pbtxt"), 7, "version_policy { specific { versions: 1 } }"),
    ]
    assert found[3]["message"] == (
        "at least one version must be available under the version policy of model 'm'; there are the versions 1"
    )


def test_version_directory_with_leading_zeros_is_told_with_its_right_name(tmp_path: Path) -> None:
    directory = onnx_models.write_model(tmp_path, "m", None, 'backend: "identity"')
    (directory / "1").rename(directory / "007")
    (found,) = problems(tmp_path)
    assert found["fix"] == f"rename {directory / '007'} to {directory / '7'}"


def test_initial_states_are_held_against_their_files(tmp_path: Path) -> None:
    state = (
        'state {{ input_name: "{0}" data_type: TYPE_FP32 dims: 4 initial_state {{ name: "n" data_type: TYPE_FP32 '
        'dims: 4 data_file: "{0}.bin" }} }}\n'
    )
    directory = onnx_models.write_model(
        tmp_path,
        "m",
        None,
        f'backend: "identity" sequence_batching {{\n{state.format("a")}{state.format("b")}{state.format("c")}}}\n',
    )
    (directory / "initial_state").mkdir()
    (directory / "initial_state" / "a.bin").write_bytes(bytes(16))
    (directory / "initial_state" / "b.bin").write_bytes(bytes(15))
    files = [each for each in problems(tmp_path) if "data_file" in str(each["field"])]
    assert [(each["line"], each["message"]) for each in files] == [
        (3, "initial_state setting expects 16 bytes, but the data provided from b.binonly has 15 bytes."),
        (4, "there is no file 'initial_state/c.bin'"),
    ]


def test_keys_given_twice_are_told(tmp_path: Path) -> None:
    onnx_models.write_model(
        tmp_path,
        "m",
        None,
        'platform: "ensemble"\n'
        'input { name: "i" data_type: TYPE_FP32 dims: 1 } input { name: "j" data_type: TYPE_FP32 dims: 1 }\n'
        'output { name: "o" data_type: TYPE_FP32 dims: 1 }\n'
        'ensemble_scheduling { step { model_name: "x" model_version: -1\n'
        '  input_map { key: "a" value: "i" }\n'
        '  input_map { key: "a" value: "j" }\n'
        '  output_map { key: "b" value: "o" } } }\n'
        'metric_tags { key: "t" value: "1" } metric_tags { key: "t" value: "2" }\n',
    )
    told = {each["line"]: each["message"] for each in problems(tmp_path)}
    assert told[6] == "input 'a' in model 'x' is mapped to multiple ensemble tensors for ensemble 'm' step 0"
    assert told[8] == 'metric_tags["t"] is given more than once; only the entry on line 8 counts'


@pytest.mark.parametrize(
    ("text", "field", "fix"),
    [
        ('name: "other" backend: "identity"', "name", 'name: "m"'),
        ('platform: "zzz"', "platform", "remove platform, and name the backend alone"),
        ('platform: "onnx_runtime_onnx"', "platform", 'platform: "onnxruntime_onnx"'),
        ("max_batch_size: 1", "backend", "put the model's file into {}/m/1"),
    ],
)
def test_name_platform_and_backend_that_make_no_sense_are_told_once(
    tmp_path: Path, text: str, field: str, fix: str
) -> None:
    onnx_models.write_model(tmp_path, "m", None, text)
    (found,) = problems(tmp_path)
    assert (found["field"], found["fix"]) == (field, fix.replace("{}", str(tmp_path)))


def test_a_wrong_name_hides_nothing(tmp_path: Path) -> None:
    text = 'name: "other"\nmax_batch_size: -1\nbackend: "identitty"'
    onnx_models.write_model(tmp_path, "m", None, text)
    assert [(each["field"], each["fix"]) for each in problems(tmp_path)] == [
        ("name", 'name: "m"'),
        ("max_batch_size", "max_batch_size: 0"),
        ("backend", 'backend: "identity"'),
    ]


def test_unknown_backends_are_told(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m", None, 'backend: "zzz"')
    (unknown,) = problems(tmp_path)
    assert str(unknown["message"]).startswith("unable to find backend library for backend 'zzz'")


def test_a_gpu_that_is_not_there_is_told_once_and_the_model_looked_at_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    model = onnx_models.identity()
    onnx_models.write_model(tmp_path, "m", model, "instance_group {\n  kind: KIND_GPU\n}\n")
    (found,) = problems(tmp_path)
    assert (found["line"], found["field"], found["fix"]) == (2, "instance_group[0].kind", "kind: KIND_CPU")
    assert "no GPUs are available: this server sees no NVIDIA GPU" in str(found["message"])
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"no model")
    assert len(problems(tmp_path)) == 2


def test_isolation_of_no_kind_is_told_with_its_line(tmp_path: Path) -> None:
    config = 'backend: "identity"\nparameters { key: "isolation" value { string_value: "fork" } }'
    onnx_models.write_model(tmp_path, "m", None, config)
    (problem,) = problems(tmp_path)
    assert problem["line"] == 2
    assert "parameter 'isolation' must be one of 'none', 'process', 'thread', got 'fork'" in str(
        problem["message"]
    )


def test_runtime_of_another_backend_is_told_with_its_line(tmp_path: Path) -> None:
    path = python_model(tmp_path, "m", answering("x"), FLOATS).parents[1] / "config.pbtxt"
    path.write_text(f'runtime: "model.py"\n{path.read_text()}')
    (problem,) = problems(tmp_path)
    assert (problem["line"], problem["field"], problem["fix"]) == (1, "runtime", "remove runtime")
    assert "unable to find Python backend based backend library 'model.py' for model 'm'" in str(
        problem["message"]
    )


def test_named_config_is_used_where_it_exists(tmp_path: Path) -> None:
    directory = onnx_models.write_model(tmp_path, "m", onnx_models.identity(), "max_batch_size: 1")
    (directory / "configs").mkdir()
    (directory / "configs" / "other.pbtxt").write_text("zzz: 1")
    assert problems(tmp_path) == []
    (found,) = problems(tmp_path, "--model-config-name", "other")
    assert found["file"] == str(directory / "configs" / "other.pbtxt")


def test_same_model_in_two_repositories_is_told(tmp_path: Path) -> None:
    for repository in ("a", "b"):
        onnx_models.write_model(tmp_path / repository, "m", onnx_models.identity())
    found = problems(tmp_path / "a", tmp_path / "b")
    assert [each["file"] for each in found] == [str(tmp_path / "a" / "m"), str(tmp_path / "b" / "m")]
    assert all("is in several repositories" in str(each["message"]) for each in found)


def test_names_that_no_text_can_hold_are_written_out(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m\udcff", None)
    assert problems(tmp_path)[0]["model"] == "m\\udcff"
    code, output = check(tmp_path)
    assert code == 1
    assert "model name must be UTF-8" in output


def test_empty_and_missing_repositories(tmp_path: Path) -> None:
    assert check(tmp_path) == (0, "0 models, no problems\n")
    code, output = check(tmp_path / "nowhere")
    assert code == 2
    assert "cannot be read (No such file or directory)" in output


# Ensembles

TENSORS = (
    'input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }\n'
    'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }\n'
)


def write_ensemble(
    repository: Path, name: str, *models: str, version: int = -1, tensors: str = TENSORS
) -> Path:
    """Its `config.pbtxt`; step K is lines 5 + 5 * K to 9 + 5 * K."""
    steps = ""
    for number, model in enumerate(models):
        source = f"T{number}" if number else "INPUT0"
        target = f"T{number + 1}" if number < len(models) - 1 else "OUTPUT0"
        steps += (
            f'step {{\n  model_name: "{model}"\n  model_version: {version}\n'
            f'  input_map {{ key: "INPUT0" value: "{source}" }} output_map {{ key: "OUTPUT0" value: "{target}" }}\n}}\n'
        )
    text = f'platform: "ensemble"\n{tensors}ensemble_scheduling {{\n{steps}}}\n'
    return onnx_models.write_model(repository, name, None, text) / "config.pbtxt"


def test_sound_ensembles_are_told_among_the_models(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "plain", onnx_models.identity())
    write_ensemble(tmp_path, "a", "outer", "plain", tensors=f"max_batch_size: 4\n{TENSORS}")
    write_ensemble(tmp_path, "outer", "plain", tensors=f"max_batch_size: 4\n{TENSORS}")
    code, output = check(tmp_path)
    assert code == 0
    assert (
        "| a     | ensemble    | 1        | 4         | INPUT0 FP32[-1, 16] | OUTPUT0 FP32[-1, 16] |"
        in output
    )
    assert "3 models, no problems" in output


def test_steps_that_name_what_is_not_there_are_told_with_their_lines(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "encoder", onnx_models.identity())
    config = write_ensemble(tmp_path, "e", "encodr", "encoder", version=3)
    assert [(each["file"], each["line"], each["message"], each["fix"]) for each in problems(tmp_path)] == [
        (
            str(config),
            6,
            "ensemble e contains models that are not available or ambiguous: encodr",
            'model_name: "encoder"',
        ),
        (
            str(config),
            12,
            "ensemble 'e' depends on 'encoder' whose required version 3 is not loaded.",
            "model_version: -1",
        ),
    ]


def test_models_that_do_not_fit_together_are_told_with_the_models_own_tensors(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m", onnx_models.identity())
    config = write_ensemble(
        tmp_path, "e", "m", tensors=f"max_batch_size: 4\n{TENSORS.replace('FP32', 'INT32')}"
    )
    found = problems(tmp_path)
    assert [(each["file"], each["line"], each["field"], each["fix"]) for each in found] == [
        (str(config), 3, "input[0]", 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [16] }'),
        (str(config), 4, "output[0]", 'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [16] }'),
    ]
    assert "in ensemble e, ensemble tensor INPUT0: inconsistent data type: TYPE_INT32" in str(
        found[0]["message"]
    )


def test_all_faults_of_an_ensemble_are_told_at_once_each_with_its_cure(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "encoder", onnx_models.identity())
    onnx_models.write_model(tmp_path, "adder", onnx_models.add_sub())
    directory = onnx_models.write_model(
        tmp_path,
        "e",
        None,
        f'name: "other"\nplatform: "ensemble"\nmax_batch_size: 16\n{TENSORS}ensemble_scheduling {{\n'
        'step {\n  model_name: "encodr"\n  model_version: -1\n'
        '  input_map { key: "INPUT0" value: "INPUT0" }\n  output_map { key: "OUTPUT0" value: "encoded" }\n}\n'
        'step {\n  model_name: "encoder"\n  model_version: 7\n'
        '  input_map { key: "INPUTO" value: "encodde" }\n  output_map { key: "OUTPUT0" value: "twice" }\n}\n'
        'step {\n  model_name: "adder"\n  model_version: -1\n'
        '  input_map { key: "INPUT0" value: "twice" }\n'
        '  output_map { key: "OUTPUT0" value: "OUTPUT0" }\n}\n}\n',
    )
    found = problems(tmp_path)
    assert {each["file"] for each in found} == {str(directory / "config.pbtxt")}
    assert [(each["line"], each["fix"]) for each in found] == [
        (1, 'name: "e"'),
        (16, 'input_map { key: "INPUTO" value: "encoded" }'),
        (8, 'model_name: "encoder"'),
        (3, "max_batch_size: 4"),
        (15, "model_version: -1"),
        (16, 'input_map { key: "INPUT0" value: "encoded" }'),
        (22, 'input_map { key: "INPUT1" value: "INPUT0" }'),
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "field", "fix"),
    [
        (
            'value: "T1" } output_map',
            'value: "T1_" } output_map',
            'ensemble_scheduling.step[1].input_map["INPUT0"]',
            'input_map { key: "INPUT0" value: "T1" }',
        ),
        (
            'key: "INPUT0" value: "INPUT0"',
            'key: "INPUT0" value: "INPUT_0"',
            'ensemble_scheduling.step[0].input_map["INPUT0"]',
            'input_map { key: "INPUT0" value: "INPUT0" }',
        ),
        (
            'key: "OUTPUT0" value: "OUTPUT0"',
            'key: "OUTPUT0" value: "OUTPT0"',
            'ensemble_scheduling.step[1].output_map["OUTPUT0"]',
            'output_map { key: "OUTPUT0" value: "OUTPUT0" }',
        ),
        (
            'key: "OUTPUT0" value: "OUTPUT0"',
            'key: "OUTPUT_0" value: "OUTPUT0"',
            'ensemble_scheduling.step[1].output_map["OUTPUT_0"]',
            'output_map { key: "OUTPUT0" value: "OUTPUT0" }',
        ),
    ],
)
def test_a_misspelt_tensor_is_corrected_to_the_nearest_name_and_told_once(
    tmp_path: Path, right: str, wrong: str, field: str, fix: str
) -> None:
    onnx_models.write_model(tmp_path, "m", onnx_models.identity())
    config = write_ensemble(tmp_path, "e", "m", "m", tensors=f"max_batch_size: 4\n{TENSORS}")
    text = config.read_text()
    assert right in text
    config.write_text(text.replace(right, wrong))
    (found,) = problems(tmp_path)
    assert (found["field"], found["fix"]) == (field, fix)
    config.write_text(text)
    assert problems(tmp_path) == []


def test_ensembles_that_need_each_other_are_told(tmp_path: Path) -> None:
    write_ensemble(tmp_path, "a", "b")
    write_ensemble(tmp_path, "b", "a")
    assert [each["message"] for each in problems(tmp_path)] == [
        "circular dependency between ensembles: a -> ... -> b -> a",
        "circular dependency between ensembles: b -> ... -> a -> b",
    ]


def test_problem_of_a_model_is_told_once_and_not_again_for_its_ensembles(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m", onnx_models.identity(), 'input { name: "X" dims: 16 }')
    write_ensemble(tmp_path, "e", "m")
    write_ensemble(tmp_path, "f", "e")
    assert {each["model"] for each in problems(tmp_path)} == {"m"}


def test_step_without_a_version_is_told(tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path, "m", onnx_models.identity())
    config = write_ensemble(tmp_path, "e", "m")
    config.write_text(config.read_text().replace("  model_version: -1\n", ""))
    (found,) = problems(tmp_path)
    assert (found["line"], found["fix"]) == (5, "model_version: -1")
    assert "whose required version 0 is not loaded" in str(found["message"])


# Python models

EXECUTE = "    def execute(self, requests):\n        return []\n"


def write_python(repository: Path, source: str, config: str = FLOATS) -> Path:
    """The file of the model m."""
    path = python_model(repository, "m", "", config)
    path.write_text(source)
    return path


def test_python_models_are_imported_to_find_missing_modules(tmp_path: Path) -> None:
    source = f"import json\nimport nonesuch.part\nclass TritonPythonModel:\n{EXECUTE}"
    path = write_python(tmp_path, source)
    (found,) = problems(tmp_path)
    assert (found["file"], found["line"]) == (str(path), 2)
    assert found["message"] == "ModuleNotFoundError: No module named 'nonesuch'"
    assert "install the package that has the module 'nonesuch'" in str(found["fix"])
    assert problems(tmp_path, "--import-timeout", "0") == []


def test_a_python_model_that_fails_in_a_module_of_its_own_is_told_with_both_places(tmp_path: Path) -> None:
    source = f"x = 1\nimport helper_of_m\nclass TritonPythonModel:\n{EXECUTE}"
    path = write_python(tmp_path, source)
    helper = path.with_name("helper_of_m.py")
    helper.write_text("\n\n1 / 0\n")
    (found,) = problems(tmp_path)
    assert (found["file"], found["line"]) == (str(path), 2)
    assert found["message"] == f"ZeroDivisionError: division by zero (at {helper}(3): <module>)"


def test_a_python_model_that_never_finishes_its_import_is_ended(tmp_path: Path) -> None:
    path = write_python(tmp_path, f"while True: pass\nclass TritonPythonModel:\n{EXECUTE}")
    (found,) = problems(tmp_path, "--import-timeout", "1")
    assert found["file"] == str(path)
    assert "took longer than 1 s, and was ended" in str(found["message"])


def test_inputs_and_outputs_that_a_python_model_does_not_list_are_told(tmp_path: Path) -> None:
    write_python(tmp_path, f"class TritonPythonModel:\n{EXECUTE}", "")
    assert [(each["field"], each["fix"]) for each in problems(tmp_path)] == [
        ("input", 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }'),
        ("output", 'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }'),
    ]


def test_tensors_that_auto_complete_config_lists_are_those_of_the_model(tmp_path: Path) -> None:
    completes = (
        "    @staticmethod\n    def auto_complete_config(config):\n        print('hello')\n"
        "        config.add_input({'name': 'a', 'data_type': 'TYPE_FP32', 'dims': [3]})\n"
        "        config.add_output({'name': 'b', 'data_type': 'TYPE_FP32', 'dims': [3]})\n        return config\n"
    )
    write_python(tmp_path, f"class TritonPythonModel:\n{completes}{EXECUTE}", "")
    code, output = check(tmp_path)
    assert code == 0
    assert "a FP32[3]" in output
    assert "hello" not in output


def test_a_bucket_is_refused_with_what_to_do() -> None:
    code, output = check("s3://bucket/models")
    assert code == 2
    assert (
        "'s3://bucket/models' is in a bucket, and only directories are checked; copy it to one first"
        in output
    )


PLANTED = """
platform: "ensemble" max_batch_size: 4
input { name: "IN" data_type: TYPE_FP32 dims: 8 }
output { name: "OUT" data_type: TYPE_INT32 dims: 16 }
ensemble_scheduling {
  step { model_name: "normaliser" model_version: -1
    input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "normalised" } }
  step { model_name: "classifer" model_version: -1
    input_map { key: "INPUT0" value: "normalized" } output_map { key: "OUTPUT0" value: "scores" } }
  step { model_name: "final" model_version: -1
    input_map { key: "INPT0" value: "scores" } output_map { key: "OUTPUT0" value: "OUT" } }
}
"""
"""A wrong shape, a wrong datatype, a misspelt model, a misspelt tensor, and a misspelt input."""


def test_five_mistakes_in_an_ensemble_are_five_problems(tmp_path: Path) -> None:
    for name in ("normaliser", "classifier", "final"):
        onnx_models.write_model(tmp_path, name, onnx_models.identity(), "max_batch_size: 4")
    onnx_models.write_model(tmp_path, "e", None, PLANTED)
    assert sorted(str(each["fix"]) for each in problems(tmp_path)) == [
        'input { name: "IN" data_type: TYPE_FP32 dims: [16] }',
        'input_map { key: "INPUT0" value: "normalised" }',
        'input_map { key: "INPUT0" value: "scores" }',
        'model_name: "classifier"',
        'output { name: "OUT" data_type: TYPE_FP32 dims: [16] }',
    ]
    _, told = check(tmp_path)
    assert "; step 1 reads 'normalized', which nothing writes; did you mean 'normalised'?" in told


def test_a_message_of_several_lines_is_printed_as_such(tmp_path: Path) -> None:
    code = "raise ValueError('one\\ntwo')\nclass TritonPythonModel:\n    pass\n"
    python_model(tmp_path, "m", code, "")
    status, told = check(tmp_path)
    assert status == 1
    assert "one\n    two" in told
    assert "\\x0a" not in told


COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def execute(self, requests):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    "text",
    [
        'input { name: "IN" }',
        'output { name: "OUT" }',
        'input { name: "IN" data_type: TYPE_FP32 dims: 1 reshape { shape: [ ] } }',
        "dynamic_batching { preferred_batch_size: 4 }",
    ],
)
def test_what_the_code_of_a_python_model_completes_is_not_a_problem(tmp_path: Path, text: str) -> None:
    python_model(tmp_path, "m", COMPLETING, text)
    assert problems(tmp_path) == []


@pytest.mark.parametrize("code", [COMPLETING, COMPLETING.replace("config.set_max", "raise ValueError"), ""])
def test_what_the_code_of_a_python_model_does_not_complete_is_told(tmp_path: Path, code: str) -> None:
    python_model(tmp_path, "m", code, 'input { name: "OTHER" }')
    fields = [each["field"] for each in problems(tmp_path)]
    assert [each for each in fields if each] == ["input[0].data_type", "input[0].dims"]
