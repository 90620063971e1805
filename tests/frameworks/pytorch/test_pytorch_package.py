import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec
from halimede.core.errors import InternalError, InvalidArgumentError
from tests.backends.helpers import Loaded, floats, request

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[pytorch]'")

from tests.frameworks.pytorch.torch_helpers import config_text, source_at  # noqa: E402

pytestmark = pytest.mark.timeout(700)  # the first waits for the package

BARE = 'platform: "torch_aoti"'
PLACED = {"ARGS[0]": "FP32 [4]", "ARGS[1][a]": "FP32 [4]", "KWARGS[bias]": "FP32 [4]"}
RESULTS = {"RESULT[sum]": "FP32 [4]", "RESULT[rest][0]": "FP32 [4]"}


@pytest.fixture
def repository(built: Path, tmp_path: Path) -> Path:
    """A repository whose model `m` is the package."""
    path = tmp_path / "m" / "1" / "model.pt2"
    path.parent.mkdir(parents=True)
    path.hardlink_to(built)
    return tmp_path


def rewritten(repository: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The repository, each file of its package changed; None leaves a file out."""
    path = repository / "m" / "1" / "model.pt2"
    with zipfile.ZipFile(path) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            if data is not None:
                archive.writestr(name, data)
    return repository


def without_source(name: str, data: bytes) -> bytes | None:
    return None if name.endswith(".wrapper.cpp") else data


def described(entries: Any) -> list[tuple[str, int, list[int]]]:
    return [(entry.name, entry.data_type, list(entry.dims)) for entry in entries]


def rows(count: int, first: float = 1) -> dict[str, Any]:
    """Inputs by the names of a completed configuration: 0, 1, 2, 3 in each row."""
    x = np.arange(4, dtype=np.float32) + np.full((count, 1), first, np.float32)
    return {"INPUT__0": x, "a": x * 10, "bias": np.ones_like(x)}


def answer(model: Loaded, inputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of one request, whose inputs have names that no argument could have."""
    return model((), **inputs)


def expected_sum(inputs: dict[str, Any]) -> Any:
    return (inputs["INPUT__0"] * 2 + inputs["a"] + inputs["bias"]).tolist()


def test_the_configuration_is_completed_from_the_package_and_a_run(repository: Path) -> None:
    model = Loaded(source_at(repository, BARE))
    assert described(model.config.input) == [("INPUT__0", 11, [4]), ("a", 11, [4]), ("bias", 11, [4])]
    assert described(model.config.output) == [("sum", 11, [4]), ("OUTPUT__1", 11, [4])]
    assert model.config.max_batch_size == 4
    assert model.config.HasField("dynamic_batching")
    inputs = rows(3)
    outputs = model(**inputs)
    assert outputs["sum"].tolist() == expected_sum(inputs)
    assert outputs["OUTPUT__1"].tolist() == (inputs["INPUT__0"] - inputs["a"]).tolist()


def test_a_batch_of_fewer_rows_than_were_compiled_is_filled_up(repository: Path) -> None:
    model = Loaded(source_at(repository, BARE))
    assert model.instance._least == 2  # type: ignore[attr-defined]  # noqa: SLF001 - how many rows a batch is filled up to shows in no answer
    inputs = rows(1)
    assert model(**inputs)["sum"].tolist() == expected_sum(inputs)


def test_requests_run_as_one_batch_and_each_gets_its_rows(repository: Path) -> None:
    model = Loaded(source_at(repository, BARE))
    first, second = rows(1), rows(2, 5)
    responses = model.run(request(first), request(second))
    assert [each.outputs["sum"].array.tolist() for each in responses] == [
        expected_sum(first),
        expected_sum(second),
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (PLACED, RESULTS),
        (
            {"INPUT__2": "FP32 [4]", "INPUT__0": "FP32 [4]", "INPUT__1": "FP32 [4]"},
            {"OUTPUT__1": "FP32 [4]", "OUTPUT__0": "FP32 [4]"},
        ),
    ],
)
def test_values_are_named_by_place_or_by_index(
    repository: Path, inputs: dict[str, str], outputs: dict[str, str]
) -> None:
    model = Loaded(source_at(repository, config_text(inputs, outputs) + BARE))
    values = rows(2)
    by_index = dict(zip(sorted(inputs), values.values(), strict=True))
    answer = model(**by_index)
    sums = answer["RESULT[sum]"] if "RESULT[sum]" in answer else answer["OUTPUT__0"]
    assert sums.tolist() == expected_sum(values)


@pytest.mark.parametrize(
    ("inputs", "batch", "expected"),
    [
        (
            PLACED | {"ARGS[0]": "FP32 [5]"},
            8,
            r"shape \[-1, 5\] for input 'ARGS\[0\]' .*model provides \[-1, 4\]",
        ),
        (PLACED | {"ARGS[0]": "INT32 [4]"}, 8, "TYPE_INT32 for input 'ARGS.0.', model provides TYPE_FP32"),
        ({"x": "FP32 [4]"}, 8, r"it has no input 'x'; the model's inputs are INPUT__0: FP32 \[-1, 4\]"),
        (PLACED, 65, "max_batch_size is 65, but the package was compiled for at most 64 rows"),
    ],
)
def test_a_configuration_that_contradicts_the_package_is_refused_with_both_sides(
    repository: Path, inputs: dict[str, str], batch: int, expected: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        Loaded(source_at(repository, config_text(inputs, RESULTS, batch) + BARE))


def test_a_size_that_the_package_was_not_compiled_for_is_an_error_and_does_not_run(repository: Path) -> None:
    free = dict.fromkeys(PLACED, "FP32 [-1, -1]")
    model = Loaded(source_at(repository, config_text(free, {"RESULT[sum]": "FP32 [-1, 4]"}, 0) + BARE))
    good = floats([1, 2, 3, 4], [5, 6, 7, 8])
    for bad, expected in (
        (np.ones((65, 4), np.float32), r"input 'INPUT__0' has shape \[65, 4\], but .* for \[2 to 64, 4\]"),
        (np.ones((1, 4), np.float32), r"input 'INPUT__0' has shape \[1, 4\], but .* for \[2 to 64, 4\]"),
        (np.ones((2, 5), np.float32), r"input 'INPUT__0' has shape \[2, 5\], but .* for \[2 to 64, 4\]"),
    ):
        with pytest.raises(InvalidArgumentError, match=expected):
            answer(model, dict.fromkeys(PLACED, good) | {"ARGS[0]": bad})
    # sizes that are each right, and contradict each other: the package itself tells
    with pytest.raises(InternalError, match="PyTorch execute failure: expected size 3==2"):
        answer(model, dict.fromkeys(PLACED, good) | {"ARGS[1][a]": np.ones((3, 4), np.float32)})
    assert answer(model, dict.fromkeys(PLACED, good))["RESULT[sum]"].tolist() == (good * 4).tolist()


def test_a_package_without_its_source_serves_what_the_configuration_lists(repository: Path) -> None:
    rewritten(repository, without_source)
    with pytest.raises(
        InvalidArgumentError, match=r"must list input and output. It takes INPUT__0, a, bias and gives"
    ):
        Loaded(source_at(repository, BARE))
    with pytest.raises(
        InvalidArgumentError, match="max_batch_size is 8, but the package was written without its source"
    ):
        Loaded(source_at(repository, config_text(PLACED, RESULTS) + BARE))
    whole = dict.fromkeys(PLACED, "FP32 [2, 4]")
    model = Loaded(source_at(repository, config_text(whole, {"RESULT[sum]": "FP32 [2, 4]"}, 0) + BARE))
    good = floats([1, 2, 3, 4], [5, 6, 7, 8])
    assert answer(model, dict.fromkeys(PLACED, good))["RESULT[sum]"].tolist() == (good * 4).tolist()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("AOTI_MACHINE", "riscv64", "the package was compiled for riscv64, and this machine is "),
        ("AOTI_PLATFORM", "win32", "the package was compiled for win32, and this machine is "),
        pytest.param(
            "AOTI_DEVICE_KEY",
            "cuda",
            "compiled for GPUs .cuda., and PyTorch sees none here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"),
        ),
    ],
)
def test_a_package_for_another_machine_is_refused_with_both_sides(
    repository: Path, key: str, value: str, expected: str
) -> None:
    def change(name: str, data: bytes) -> bytes:
        return (
            json.dumps(json.loads(data) | {key: value}).encode() if name.endswith("_metadata.json") else data
        )

    rewritten(repository, change)
    with pytest.raises(InvalidArgumentError, match=f"unable to load model 'm': .*{expected}"):
        Loaded(source_at(repository, BARE))


def test_a_package_for_cpus_is_refused_on_a_gpu(repository: Path) -> None:
    model = Loaded(source_at(repository, BARE))
    with pytest.raises(
        InvalidArgumentError, match=r"compiled for CPUs, and the instance is on a GPU; .*KIND_CPU"
    ):
        model.backend.create_instance(InstanceSpec("m_1", 1, "KIND_GPU", 0))


def test_a_package_is_not_compiled_again(repository: Path) -> None:
    text = " parameters { key: \"TORCH_COMPILE_OPTIONAL_PARAMETERS\" value { string_value: '{}' } }"
    with pytest.raises(InvalidArgumentError, match="is a package of AOTInductor"):
        Loaded(source_at(repository, BARE + text))


def test_a_truncated_package_is_refused(repository: Path) -> None:
    path = repository / "m" / "1" / "model.pt2"
    data = path.read_bytes()[:-100]
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(InvalidArgumentError, match=r"model\.pt2 is no PyTorch archive, or is cut off"):
        Loaded(source_at(repository, BARE))


def test_a_file_of_any_name_is_served(repository: Path) -> None:
    path = repository / "m" / "1" / "model.pt2"
    path.rename(path.with_name("other.bin"))
    model = Loaded(source_at(repository, BARE + ' default_model_filename: "other.bin"'))
    inputs = rows(2)
    assert model(**inputs)["sum"].tolist() == expected_sum(inputs)


def test_nothing_is_left_on_the_disk_while_a_package_serves(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    before = os.environ.get("TMPDIR")
    model = Loaded(source_at(repository, BARE), BackendOptions())
    assert list(directory.iterdir()) == []
    assert os.environ.get("TMPDIR") == before
    inputs = rows(2)
    assert model(**inputs)["sum"].tolist() == expected_sum(inputs)
    model.close()


def test_shared_packages_run_from_several_threads(repository: Path) -> None:
    text = BARE + ' parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'
    model = Loaded(source_at(repository, text))
    other = model.backend.create_instance(InstanceSpec("m_1", 1))
    assert other._program is model.instance._program  # type: ignore[attr-defined]  # noqa: SLF001 - that it is shared or freed shows in memory only
    wrong: list[Any] = []
    inputs = rows(2)

    def run(instance: Any) -> None:
        for _ in range(200):
            batch = model.batch(request(inputs))
            instance.execute(batch)
            if batch.responses[0].outputs["sum"].array.tolist() != expected_sum(inputs):
                wrong.append(batch)

    threads = [Thread(target=run, args=(each,)) for each in (model.instance, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
