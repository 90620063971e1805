"""What `halimede check` warns of, and that its fixes help."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from halimede.cli.check.command import command
from tests.cli.check.test_fixes import ECHO, apply
from tests.support import onnx_models

IDENTITY = ECHO.replace("onnxruntime", "identity")
WARNINGS = {
    "iterative": f"{ECHO} sequence_batching {{ iterative_sequence: true }}",
    "candidates": f"{ECHO} sequence_batching {{ oldest {{ max_candidate_sequences: 2 }} }}",
    "utilization": f"{ECHO} sequence_batching {{ direct {{ minimum_slot_utilization: 0.5 }} }}",
    "delay": f"{ECHO} sequence_batching {{ direct {{ max_queue_delay_microseconds: 7 }} }}",
    "parameter": f'{ECHO} parameters {{ key: "intra_op_thread_cuont" value {{ string_value: "2" }} }}',
    "parameter in another case": f'{ECHO} parameters {{ key: "Isolation" value {{ string_value: "none" }} }}',
    "state": (
        f"{IDENTITY} sequence_batching {{ state {{ "
        'input_name: "IN" output_name: "OUT" data_type: TYPE_FP32 dims: 1 } }'
    ),
    "control": (
        f'{IDENTITY} sequence_batching {{ control_input {{ name: "INPUT0" '
        "control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }"
    ),
}


@pytest.mark.parametrize("what", WARNINGS)
def test_a_warning_is_no_problem_and_its_fix_ends_it(tmp_path: Path, what: str) -> None:
    model = None if IDENTITY in WARNINGS[what] else onnx_models.identity()
    directory = onnx_models.write_model(tmp_path, "m", model, WARNINGS[what])
    result = CliRunner().invoke(command, ["--format", "json", str(tmp_path)])
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert told["problems"] == []
    [warning] = told["warnings"]
    assert warning["model"] == "m"
    assert warning["line"] == 1
    apply(warning, directory)
    result = CliRunner().invoke(command, ["--format", "json", str(tmp_path)])
    assert (json.loads(result.output)["problems"], json.loads(result.output)["warnings"]) == ([], [])


def test_warnings_are_counted_beside_problems(tmp_path: Path) -> None:
    directory = onnx_models.write_model(
        tmp_path, "m", onnx_models.identity(), f"{ECHO}\nsequence_batching {{ oldest {{ }} }}"
    )
    warning = (
        f"{directory / 'config.pbtxt'}:2: warning: batches can never have 4 rows: they have one request of each "
        f"sequence, of which an instance has 1 at most [sequence_batching.oldest.max_candidate_sequences]\n"
        f"    fix: max_candidate_sequences: 4\n"
    )
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.startswith(warning + "+---")
    assert result.output.endswith("1 model, no problems, 1 warning\n")
    bad = onnx_models.write_model(tmp_path, "n", onnx_models.identity(), "max_batch_size: -1")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith(f"{bad / 'config.pbtxt'}:1: ")
    assert result.output.endswith(f"{warning}1 problem in 1 of 2 models, 1 warning\n")
