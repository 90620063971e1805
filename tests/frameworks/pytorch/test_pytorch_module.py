import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.backends.base import InstanceSpec
from halimede.config.parse import parse_text
from halimede.core.errors import InternalError, InvalidArgumentError, UnsupportedError
from tests.backends.helpers import Loaded, floats, request, strings

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[pytorch]'")

from tests.frameworks.pytorch.torch_helpers import config_text, source_at  # noqa: E402

LINEAR = """
import torch

class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x, bias=None):
        y = self.layer(x)
        return y if bias is None else y + bias
"""
RUNTIME = ' runtime: "model.py"'


@pytest.fixture(autouse=True)
def _own_path() -> Iterator[None]:
    """A model has a process of its own, where it may change the path of imports; these tests share one."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("halimede_model", "halimede_test_layers"):
            del sys.modules[name]


def load(
    directory: Path,
    code: str,
    inputs: dict[str, str],
    outputs: dict[str, str],
    batch: int = 8,
    more: str = "",
) -> Loaded:
    """Model `m` whose module has that code."""
    path = directory / "m" / "1" / "model.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return Loaded(source_at(directory, config_text(inputs, outputs, batch) + RUNTIME + more))


def module(forward: str) -> str:
    """The code of a module with that method."""
    return f"import torch\nclass Model(torch.nn.Module):\n    {forward}\n"


def save_weights(directory: Path, name: str, value: float = 2.0) -> dict[str, Any]:
    path = directory / "m" / "1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"layer.weight": torch.eye(2) * value, "layer.bias": torch.zeros(2)}
    if path.suffix == ".safetensors":
        save_file = pytest.importorskip("safetensors.torch", reason="needs safetensors").save_file
        save_file(state, path)
    else:
        torch.save(state, path)
    return state


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_module_runs_with_the_weights_beside_it(tmp_path: Path, name: str) -> None:
    save_weights(tmp_path, name)
    model = load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    first, second = model.run(request({"x": floats([1, 2])}), request({"x": floats([3, 4], [5, 6])}))
    assert first.outputs["y"].array.tolist() == [[2, 4]]
    assert second.outputs["y"].array.tolist() == [[6, 8], [10, 12]]


def test_safetensors_go_before_a_state_dict(tmp_path: Path) -> None:
    save_weights(tmp_path, "model.pt", 5)
    save_weights(tmp_path, "model.safetensors", 3)
    model = load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    assert model(x=floats([1, 2]))["y"].tolist() == [[3, 6]]


def test_weights_that_would_run_code_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(
        InvalidArgumentError, match=r"model\.pt is cut off, or holds more than tensors, .*state_dict"
    ):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_truncated_weights_are_refused(tmp_path: Path, name: str) -> None:
    save_weights(tmp_path, name)
    path = tmp_path / "m" / "1" / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidArgumentError, match=f"{name} (is cut off|cannot be read)"):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})


def test_weights_of_another_module_are_refused_with_both_sides(tmp_path: Path) -> None:
    save_weights(tmp_path, "model.pt")
    code = LINEAR.replace("self.layer", "self.other")
    with pytest.raises(
        InvalidArgumentError, match=r"(?s)model\.pt does not fit model\.py: .*other\.weight.*layer\.weight"
    ):
        load(tmp_path, code, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})


def test_a_list_is_no_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save([torch.ones(2)], path)
    with pytest.raises(InvalidArgumentError, match="holds no weights by name"):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"b": "FP32 [2]", "a": "FP32 [2]"}, [[9, 18]]),
        ({"INPUT__1": "FP32 [2]", "INPUT__0": "FP32 [2]"}, [[9, 18]]),
        ({"first": "FP32 [2]", "second": "FP32 [2]"}, [[-9, -18]]),
    ],
)
def test_inputs_go_by_name_or_index_or_order(
    tmp_path: Path, inputs: dict[str, str], expected: list[list[float]]
) -> None:
    """The first of the configuration gets 1, 2 and the second 10, 20; the module subtracts."""
    model = load(tmp_path, module("def forward(self, a, b): return a - b"), inputs, {"y": "FP32 [2]"})
    one, two = inputs
    assert model((), **{one: floats([1, 2]), two: floats([10, 20])})["y"].tolist() == expected


@pytest.mark.parametrize(
    ("returned", "outputs", "expected"),
    [
        ("x", {"y": "FP32 [2]"}, {"y": [[1, 2]]}),
        ("x, x + 1", {"y": "FP32 [2]", "z": "FP32 [2]"}, {"y": [[1, 2]], "z": [[2, 3]]}),
        ("[x, x + 1]", {"OUTPUT__1": "FP32 [2]"}, {"OUTPUT__1": [[2, 3]]}),
        ("{'z': x + 1, 'y': x}", {"y": "FP32 [2]", "z": "FP32 [2]"}, {"y": [[1, 2]], "z": [[2, 3]]}),
        ("['a', 'b'][:len(x)]", {"y": "STRING [1]"}, {"y": [[b"a"]]}),
    ],
)
def test_results_may_be_a_tensor_a_sequence_a_dictionary_or_strings(
    tmp_path: Path, returned: str, outputs: dict[str, str], expected: dict[str, Any]
) -> None:
    model = load(tmp_path, module(f"def forward(self, x): return {returned}"), {"x": "FP32 [2]"}, outputs)
    assert {name: array.tolist() for name, array in model(x=floats([1, 2])).items()} == expected


def test_an_output_that_a_run_does_not_give_is_an_error_that_names_those_it_gives(tmp_path: Path) -> None:
    code = module("def forward(self, x): return {'other': x}")
    model = load(tmp_path, code, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    with pytest.raises(InternalError, match="output 'y' is not among what the model gave: keys other"):
        model(x=floats([1, 2]))


def test_strings_a_dictionary_and_any_number_of_tensors_are_taken(tmp_path: Path) -> None:
    code = module("def forward(self, t: list[str]): return [each + '!' for each in t]")
    model = load(tmp_path / "a", code, {"t": "STRING [1]"}, {"y": "STRING [1]"})
    assert model(t=strings([b"x"]))["y"].tolist() == [[b"x!"]]
    code = module("def forward(self, t: dict[str, torch.Tensor]): return t['a'] - t['b']")
    tensors = {"a": "FP32 [2]", "b": "FP32 [2]"}
    model = load(tmp_path / "b", code, tensors, {"y": "FP32 [2]"})
    assert model(a=floats([1, 2]), b=floats([1, 1]))["y"].tolist() == [[0, 1]]
    model = load(
        tmp_path / "c", module("def forward(self, *t): return t[0] - t[1]"), tensors, {"y": "FP32 [2]"}
    )
    assert model(a=floats([1, 2]), b=floats([1, 1]))["y"].tolist() == [[0, 1]]


def test_an_argument_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    save_weights(tmp_path, "model.pt", 1)
    inputs = {"x": "FP32 [1, 2]", "bias": "FP32 [1, 2]"}
    path = tmp_path / "m" / "1" / "model.py"
    path.write_text(LINEAR)
    text = config_text(inputs, {"y": "FP32 [1, 2]"}, 0).replace('"bias"', '"bias" optional: true') + RUNTIME
    model = Loaded(source_at(tmp_path, text))
    assert model(x=floats([1, 2]))["y"].tolist() == [[1, 2]]
    assert model(x=floats([1, 2]), bias=floats([1, 1]))["y"].tolist() == [[2, 3]]


def test_a_module_that_writes_to_its_input_leaves_the_request_alone(tmp_path: Path) -> None:
    model = load(
        tmp_path, module("def forward(self, x): return x.mul_(2)"), {"x": "FP32 [2]"}, {"y": "FP32 [2]"}
    )
    sent = floats([1, 2])
    assert model(x=sent)["y"].tolist() == [[2, 4]]
    assert sent.tolist() == [[1, 2]]


def test_a_module_runs_in_evaluation_and_inference_mode(tmp_path: Path) -> None:
    forward = "def forward(self, x): return x + 10 * self.training + 100 * torch.is_inference_mode_enabled()"
    model = load(tmp_path, module(forward), {"x": "FP32 [1]"}, {"y": "FP32 [1]"})
    assert model(x=floats([1]))["y"].tolist() == [[101]]


def test_other_files_of_the_version_can_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "halimede_test_layers.py"
    path.parent.mkdir(parents=True)
    path.write_text("import torch\nclass Base(torch.nn.Module):\n    offset = 5\n")
    code = """
from halimede_test_layers import Base
class Model(Base):
    def forward(self, x):
        return x + self.offset
"""
    assert load(tmp_path, code, {"x": "FP32 [1]"}, {"y": "FP32 [1]"})(x=floats([1]))["y"].tolist() == [[6]]


def test_of_several_classes_the_first_by_name_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
from torch.nn import Linear, Module
class Second(Module):
    pass
class First(Module):
    def forward(self, x):
        return x
"""
    with caplog.at_level("INFO", "halimede"):
        model = load(tmp_path, code, {"x": "FP32 [1]"}, {"y": "FP32 [1]"})
    assert model(x=floats([1]))["y"].tolist() == [[1]]
    assert "the model is First, the first by name; not Second" in caplog.text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", r"model\.py defines no class that extends torch\.nn\.Module"),
        ("from torch.nn import Module", r"model\.py defines no class that extends torch\.nn\.Module"),
        ("import nowhere", r"model\.py fails: ModuleNotFoundError: No module named 'nowhere' \(line 1\)"),
        ("x = 1\nclass :", r"model\.py fails: SyntaxError: .* \(line 2\)"),
        (
            "import torch\nclass A(torch.nn.Module):\n  def __init__(self, size):\n    pass",
            r"model\.py fails: TypeError: .*missing 1 required positional argument: 'size'",
        ),
        (
            "import torch\nclass A(torch.nn.Module):\n  def __init__(self):\n    raise ValueError('no')",
            r"model\.py fails: ValueError: no \(line 4\)",
        ),
    ],
)
def test_code_that_fails_is_refused_with_its_reason(tmp_path: Path, code: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unable to load model 'm': " + expected):
        load(tmp_path, code, {"x": "FP32 [1]"}, {"y": "FP32 [1]"})


def test_an_error_of_forward_has_its_type(tmp_path: Path) -> None:
    model = load(
        tmp_path, module("def forward(self, x): return {}['a']"), {"x": "FP32 [1]"}, {"y": "FP32 [1]"}
    )
    with pytest.raises(InternalError, match="PyTorch execute failure: KeyError: 'a'"):
        model(x=floats([1]))


def test_a_configuration_without_tensors_is_refused_with_what_forward_takes(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must list input and output. It takes \(x, bias=None\)"):
        load(tmp_path, LINEAR, {}, {})


def test_an_input_that_forward_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"it has no input 'z'; the model's inputs are \(x, bias=None\)"
    ):
        load(tmp_path, LINEAR, {"bias": "FP32 [2]", "z": "FP32 [2]"}, {"y": "FP32 [2]"})


def test_a_module_cannot_run_in_a_thread_of_the_server(tmp_path: Path) -> None:
    more = ' parameters { key: "isolation" value { string_value: "thread" } }'
    with pytest.raises(
        InvalidArgumentError, match="parameter 'isolation' cannot be 'thread' for a module of Python"
    ):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"}, more=more)


def test_kind_model_leaves_the_placement_to_the_module(tmp_path: Path) -> None:
    save_weights(tmp_path, "model.pt")
    code = LINEAR.replace(
        "def forward", "def to(self, *where):\n        raise AssertionError('moved')\n\n    def forward"
    )
    path = tmp_path / "m" / "1" / "model.py"
    path.write_text(code)
    config = parse_text(config_text({"x": "FP32 [2]"}, {"y": "FP32 [2]"}) + RUNTIME, "test")
    source = source_at(tmp_path, str(config))
    from halimede.backends.base import BackendOptions
    from halimede.backends.pytorch.backend import PyTorchModel

    model = PyTorchModel(source, BackendOptions())
    instance = model.create_instance(InstanceSpec("m_0", kind="KIND_MODEL"))
    assert instance._device is None  # type: ignore[attr-defined]  # noqa: SLF001 - where it runs, which no answer tells
    with pytest.raises(InternalError, match="moved"):
        model.create_instance(InstanceSpec("m_1", kind="KIND_CPU"))
    model.close()


@pytest.mark.parametrize("arguments", ['{"backend": "eager"}', '{"backend": "eager", "dynamic": true}'])
def test_a_module_is_compiled_where_the_parameter_says_so(tmp_path: Path, arguments: str) -> None:
    more = f" parameters {{ key: \"TORCH_COMPILE_OPTIONAL_PARAMETERS\" value {{ string_value: '{arguments}' }} }}"
    frames = torch._dynamo.utils.counters["frames"]  # noqa: SLF001 - PyTorch has no public name for it
    before = frames["ok"]
    model = load(
        tmp_path,
        module("def forward(self, x): return x * 2"),
        {"x": "FP32 [2]"},
        {"y": "FP32 [2]"},
        more=more,
    )
    assert model(x=floats([1, 2]))["y"].tolist() == [[2, 4]]
    assert model(x=floats([1, 2], [3, 4]))["y"].tolist() == [[2, 4], [6, 8]]
    assert frames["ok"] > before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", r"must be a JSON object such as \{\"mode\": \"default\"\}, got 'yes'"),
        ("[1]", r"must be a JSON object, got '\[1\]'"),
        ('{"model": 1}', "has no key 'model'; its keys are fullgraph, dynamic"),
        ('{"dynamic": 1}', "'dynamic' must be true or false, got 1"),
        ('{"mode": true}', "'mode' must be a string, got true"),
    ],
)
def test_wrong_compile_parameters_are_refused_by_name(tmp_path: Path, text: str, expected: str) -> None:
    more = f" parameters {{ key: \"TORCH_COMPILE_OPTIONAL_PARAMETERS\" value {{ string_value: '{text}' }} }}"
    with pytest.raises(
        InvalidArgumentError, match="parameter 'TORCH_COMPILE_OPTIONAL_PARAMETERS'.*" + expected
    ):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"}, more=more)


def test_a_disabled_compiler_compiles_nothing(tmp_path: Path) -> None:
    more = ' parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: \'{"disable": true}\' } }'
    forward = "def forward(self, x): return x + torch.compiler.is_compiling()"
    model = load(tmp_path, module(forward), {"x": "FP32 [1]"}, {"y": "FP32 [1]"}, more=more)
    assert model(x=floats([1]))["y"].tolist() == [[1]]


def test_threads_named_twice_must_agree(tmp_path: Path) -> None:
    more = "".join(
        f' parameters {{ key: "{key}" value {{ string_value: "{count}" }} }}'
        for key, count in {"NUM_THREADS": 1, "INTRA_OP_THREAD_COUNT": 2}.items()
    )
    with pytest.raises(
        InvalidArgumentError, match="'INTRA_OP_THREAD_COUNT' and 'NUM_THREADS' mean the same, but are 2 and 1"
    ):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"}, more=more)


def test_missing_safetensors_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m" / "1" / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UnsupportedError, match=r'pip install "halimede\[pytorch\]"'):
        load(tmp_path, LINEAR, {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
