"""Misspelt parameters, and that the names of the backends' parameters are those that their code reads."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format

import halimede
from halimede.backends.registry import BACKENDS
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.parameters import EVERYWHERE, KNOWN, misspelt_parameters

_FOLDERS = {"onnxruntime": "backends/onnx", "python": "workers"}
_READERS = {
    "text_parameter", "integer_parameter", "choice_parameter", "switch_parameter", "_switch", "_of_model"
}  # fmt: skip
_TESTING = {"dyna_sequence", "identity", "implicit_state", "repeat", "sequence", "square"}


def keys_read(folder: Path) -> set[str]:
    """The parameters that the modules of a folder read by name, or by the name of a constant or a loop over some."""
    found: set[str] = set()
    trees = [ast.parse(file.read_text()) for file in folder.rglob("*.py")]
    imported = {name: texts for tree in trees for name, texts in constants_of(tree)}
    for tree in trees:
        constants = imported | dict(constants_of(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READERS:
                key = node.args[1]
                if isinstance(key, ast.Constant):
                    found.add(str(key.value))
                elif isinstance(key, ast.Name):
                    found |= constants.get(key.id, set())
    return found


def constants_of(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Name → texts of each constant, and of each variable of a loop over a constant or a tuple of texts."""
    known: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                known[target.id] = texts_of(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            over = known.get(node.iter.id, set()) if isinstance(node.iter, ast.Name) else texts_of(node.iter)
            known.setdefault(node.target.id, set()).update(over)
    yield from known.items()


def texts_of(value: ast.expr) -> set[str]:
    """The text that an expression is, or the texts or keys that it lists."""
    if isinstance(value, ast.Dict):
        parts = [key for key in value.keys if key is not None]
    else:
        parts = value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


@pytest.mark.parametrize("backend", sorted(KNOWN))
def test_all_parameters_that_a_backend_reads_are_known(backend: str) -> None:
    read = keys_read(Path(halimede.__file__).parent / _FOLDERS.get(backend, f"backends/{backend}"))
    assert read or backend in ("tensorrt", "vllm"), "the test sees no parameter"
    assert read <= KNOWN[backend] | EVERYWHERE


def test_all_backends_but_those_for_tests_have_known_parameters() -> None:
    assert KNOWN.keys() == set(BACKENDS) - _TESTING


@pytest.mark.parametrize("key", ["my_threshold", "intra_op", "thread", "INPUT", "openai.task"])
def test_parameters_of_models_themselves_are_no_mistakes(key: str) -> None:
    text = f'backend: "onnxruntime" parameters {{ key: "{key}" value {{ string_value: "1" }} }}'
    assert list(misspelt_parameters(text_format.Parse(text, ModelConfig()))) == []


@pytest.mark.parametrize(
    ("key", "right"), [("SLOW_EXECUTION_SECOND", "SLOW_EXECUTION_SECONDS"), ("Strict", "strict")]
)
def test_misspelt_parameters_of_python_models(key: str, right: str) -> None:
    text = f'backend: "python" parameters {{ key: "{key}" value {{ string_value: "1" }} }}'
    [found] = misspelt_parameters(text_format.Parse(text, ModelConfig()))
    assert f"did you mean '{right}'?" in found.message


def test_a_parameter_beside_the_right_one_is_no_mistake() -> None:
    entry = 'parameters {{ key: "{}" value {{ string_value: "1" }} }} '
    text = 'backend: "onnxruntime" ' + entry.format("intra_op_thread_count")
    text += entry.format("intra_op_thread_cuont")
    found = list(misspelt_parameters(text_format.Parse(text, ModelConfig())))
    assert found == []
