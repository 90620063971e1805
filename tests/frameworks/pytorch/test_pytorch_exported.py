from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.core.datatypes import BF16
from halimede.core.errors import InternalError, InvalidArgumentError
from tests.backends.helpers import Loaded, floats, request, wire

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import config_text, source_at  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

BARE = 'platform: "torch_aoti"'


def load(
    directory: Path, module: Any, example: Sequence[Any], text: str = BARE, *, batched: bool = True
) -> Loaded:
    """Model `m` in `directory`, exported with that example."""
    torch_models.save_exported(directory / "m" / "1" / "model.pt2", module, example, batched=batched)
    return Loaded(source_at(directory, text))


def described(entries: Any) -> list[tuple[str, int, list[int]]]:
    return [(entry.name, entry.data_type, list(entry.dims)) for entry in entries]


def test_configuration_is_completed_from_the_program(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.AddSub(), [torch.ones(3, 2), torch.ones(3, 2)])
    assert described(model.config.input) == [("INPUT0", 11, [2]), ("INPUT1", 11, [2])]
    assert described(model.config.output) == [("OUTPUT__0", 11, [2]), ("OUTPUT__1", 11, [2])]
    assert model.config.max_batch_size == 4
    assert model.config.HasField("dynamic_batching")
    outputs = model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))
    assert outputs["OUTPUT__0"].tolist() == [[11, 22]]
    assert outputs["OUTPUT__1"].tolist() == [[-9, -18]]


def test_a_program_of_fixed_shapes_does_not_batch(tmp_path: Path) -> None:
    example = [torch.ones(3, 2, dtype=torch.int64) for _ in range(2)]
    model = load(tmp_path, torch_models.AddSub(), example, batched=False)
    assert model.config.max_batch_size == 0
    assert described(model.config.input) == [("INPUT0", 9, [3, 2]), ("INPUT1", 9, [3, 2])]
    with pytest.raises(InternalError, match="does not support batching while non-zero"):
        Loaded(source_at(tmp_path, BARE + " max_batch_size: 2"))


def test_a_batch_runs_once_and_each_request_gets_its_rows(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Linear(2), [torch.ones(3, 2)])
    rows = [floats([1, 2]), floats([3, 4], [5, 6])]
    together = model.run(*(request({"x": each}) for each in rows))
    for response, each in zip(together, rows, strict=True):
        assert np.allclose(response.outputs["OUTPUT__0"].array, model(x=each)["OUTPUT__0"])


def test_dictionaries_are_named_by_key_or_by_place(tmp_path: Path) -> None:
    example = [{"a": torch.ones(3, 2), "b": torch.ones(3, 2)}]
    model = load(tmp_path, torch_models.Keyed(), example)
    assert model(a=floats([1, 2]), b=floats([10, 20]))["sum"].tolist() == [[11, 22]]
    text = config_text({"ARGS[0][b]": "FP32 [2]", "ARGS[0][a]": "FP32 [2]"}, {"RESULT[first]": "FP32 [2]"})
    placed = Loaded(source_at(tmp_path, text + BARE))
    (response,) = placed.run(request({"ARGS[0][a]": floats([1, 2]), "ARGS[0][b]": floats([10, 20])}))
    assert response.outputs["RESULT[first]"].array.tolist() == [[1, 2]]


def test_indexed_names_choose_by_position(tmp_path: Path) -> None:
    text = config_text({"INPUT__1": "FP32 [2]", "INPUT__0": "FP32 [2]"}, {"OUTPUT__1": "FP32 [2]"}) + BARE
    model = load(tmp_path, torch_models.AddSub(), [torch.ones(3, 2), torch.ones(3, 2)], text)
    assert model(INPUT__0=floats([1, 2]), INPUT__1=floats([10, 20]))["OUTPUT__1"].tolist() == [[-9, -18]]


def test_outputs_without_names_go_by_the_order_and_those_with_keys_do_not(tmp_path: Path) -> None:
    text = config_text({}, {"s": "FP32 [2]", "d": "FP32 [2]"}) + BARE
    model = load(tmp_path, torch_models.AddSub(), [torch.ones(3, 2), torch.ones(3, 2)], text)
    assert model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))["d"].tolist() == [[-9, -18]]
    example = [{"a": torch.ones(3, 2), "b": torch.ones(3, 2)}]
    with pytest.raises(InvalidArgumentError, match=r"it has no output 'total'; .*sum: FP32 \[-1, 2\]"):
        load(tmp_path, torch_models.Keyed(), example, config_text({}, {"total": "FP32 [2]"}) + BARE)


def test_bf16_and_scalars_pass(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Identity(), [torch.ones(3, 2, dtype=torch.bfloat16)])
    sent = wire(np.array([[1, 2]], "<u2"), BF16)
    assert bytes(model.run(request({"x": sent}))[0].outputs["OUTPUT__0"].data) == bytes(sent.data)
    total = load(tmp_path, torch_models.Sum(), [torch.ones(2)], batched=False)
    assert described(total.config.output) == [("OUTPUT__0", 11, [1])]
    assert total(x=np.array([1, 2], np.float32))["OUTPUT__0"].tolist() == [3]


def test_a_program_that_writes_to_its_input_leaves_the_request_alone(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Doubler(), [torch.ones(3, 2)])
    sent = wire(floats([1, 2]))
    assert model(x=sent)["OUTPUT__0"].tolist() == [[2, 4]]
    assert sent.array.tolist() == [[1, 2]]


def test_state_keeps_its_value_in_a_response(tmp_path: Path) -> None:
    text = config_text({"x": "FP32 [1, 1]"}, {"n": "FP32 [1, 1]"}, 0) + BARE
    text = text.replace('"n"', '"OUTPUT__0"')
    model = load(tmp_path, torch_models.Counter(), [torch.ones(1, 1)], text, batched=False)
    first, second = model(x=floats([0])), model(x=floats([0]))
    assert (first["OUTPUT__0"].tolist(), second["OUTPUT__0"].tolist()) == ([[1]], [[2]])


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (
            {"INPUT0": "FP32 [2]", "IN": "FP32 [2]"},
            {"OUTPUT__0": "FP32 [2]"},
            r"it has no input 'IN'; .*INPUT1: FP32",
        ),
        ({"INPUT0": "FP32 [2]"}, {"OUTPUT__0": "FP32 [2]"}, "requires input 'INPUT1'"),
        (
            {"INPUT0": "INT32 [2]", "INPUT1": "FP32 [2]"},
            {"OUTPUT__0": "FP32 [2]"},
            "expects datatype TYPE_INT32 for input 'INPUT0', model provides TYPE_FP32",
        ),
        (
            {"INPUT0": "FP32 [3]", "INPUT1": "FP32 [2]"},
            {"OUTPUT__0": "FP32 [2]"},
            r"shape \[-1, 3\] for input 'INPUT0' .*model provides \[-1, 2\]",
        ),
        (
            {"INPUT0": "FP32 [2]", "INPUT1": "FP32 [2]"},
            {"OUTPUT__0": "FP32 [2, 2]"},
            r"shape \[-1, 2, 2\] for output 'OUTPUT__0'",
        ),
    ],
)
def test_a_configuration_that_contradicts_the_program_is_refused_with_both_sides(
    tmp_path: Path, inputs: dict[str, str], outputs: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        load(
            tmp_path,
            torch_models.AddSub(),
            [torch.ones(3, 2), torch.ones(3, 2)],
            config_text(inputs, outputs) + BARE,
        )


def test_batching_that_the_program_cannot_do_is_refused(tmp_path: Path) -> None:
    text = config_text({"x": "FP32 [2]"}, {"OUTPUT__0": "FP32 [2]"}) + BARE
    with pytest.raises(
        InvalidArgumentError, match=r"shape \[-1, 2\] for input 'x' .*model provides \[3, 2\]"
    ):
        load(tmp_path, torch_models.Linear(2), [torch.ones(3, 2)], text, batched=False)


def test_a_request_that_the_program_guards_against_is_an_error(tmp_path: Path) -> None:
    module, example = torch_models.AddSub(), [torch.ones(3, 2), torch.ones(3, 2)]
    text = config_text({"INPUT0": "FP32 [-1]", "INPUT1": "FP32 [-1]"}, {"OUTPUT__0": "FP32 [-1]"}) + BARE
    model = load(tmp_path, module, example, text)
    with pytest.raises(InternalError, match="PyTorch execute failure: "):
        model(INPUT0=floats([1, 2, 3]), INPUT1=floats([1, 2, 3]))
    assert model(INPUT0=floats([1, 2]), INPUT1=floats([1, 2]))["OUTPUT__0"].tolist() == [[2, 4]]


def test_the_content_of_the_file_decides_not_its_name(tmp_path: Path) -> None:
    torch_models.save_script(tmp_path / "m" / "1" / "model.pt2", torch_models.AddSub())
    text = config_text({"a": "FP32 [2]", "b": "FP32 [2]"}, {"s": "FP32 [2]"})
    model = Loaded(source_at(tmp_path, text + BARE))
    assert model(a=floats([1, 2]), b=floats([1, 1]))["s"].tolist() == [[2, 3]]


def test_a_truncated_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt2"
    torch_models.save_exported(path, torch_models.Linear(2), [torch.ones(3, 2)])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidArgumentError, match=r"model\.pt2 is no PyTorch archive, or is cut off"):
        Loaded(source_at(tmp_path, BARE))


def test_a_program_without_its_example_still_checks_requests(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt2"
    path.parent.mkdir(parents=True)
    program = torch.export.export(
        torch_models.Keyed(),
        ({"a": torch.ones(3, 2), "b": torch.ones(3, 2)},),
        dynamic_shapes=({"a": {0: torch.export.Dim.AUTO}, "b": {0: torch.export.Dim.AUTO}},),
    )
    program.example_inputs = None
    torch.export.save(program, path)
    text = config_text({"a": "FP32 [-1]", "b": "FP32 [-1]"}, {"sum": "FP32 [-1]"}) + BARE
    model = Loaded(source_at(tmp_path, text))
    with pytest.raises(InternalError, match=r"PyTorch execute failure: .*2"):
        model(a=floats([1, 2, 3]), b=floats([1, 2, 3]))
    assert model(a=floats([1, 2]), b=floats([1, 2]))["sum"].tolist() == [[2, 4]]


def test_a_program_is_compiled_where_the_parameter_says_so(tmp_path: Path) -> None:
    example = [{"a": torch.ones(3, 2), "b": torch.ones(3, 2)}]
    text = """parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: '{"backend": "eager"}' } }"""
    model = load(tmp_path, torch_models.Keyed(), example, BARE + text)
    frames = torch._dynamo.utils.counters["frames"]  # noqa: SLF001 - PyTorch has no public name for it
    before = frames["ok"]
    for rows in (floats([1, 2]), floats([1, 2], [3, 4])):
        assert model(a=rows, b=rows)["sum"].tolist() == (2 * rows).tolist()
    assert frames["ok"] > before
