"""What is told of PyTorch models without PyTorch: kinds of files, isolation, what packages say of themselves."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from halimede.backends.base import ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.backends.pytorch.files import Kind, file_kind
from halimede.backends.pytorch.package_checks import InputCheck, Size, read_checks, refuse_foreign
from halimede.config.parse import parse_text
from halimede.core.datatypes import BF16, FP32, INT64
from halimede.core.errors import InvalidArgumentError

SCRIPT = ("m/constants.pkl", "m/data.pkl", "m/code/x.py")
EXPORTED = ("m/models/model.json", "m/archive_format")
PACKAGE = ("m/data/aotinductor/model/x.wrapper.so", "m/archive_format")
WEIGHTS = ("m/data.pkl", "m/data/0")


def archive(path: Path, *members: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for member in members:
            file.writestr(member, b"")
    return path


@pytest.mark.parametrize(
    ("members", "kind"), [(SCRIPT, Kind.SCRIPT), (EXPORTED, Kind.EXPORTED), (PACKAGE, Kind.PACKAGE)]
)
def test_the_kind_is_told_by_what_is_in_the_archive(
    tmp_path: Path, members: tuple[str, ...], kind: Kind
) -> None:
    assert file_kind("m", archive(tmp_path / "model.pt2", *members)) is kind


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"a pickled module or its weights.*model\.py.*runtime"):
        file_kind("m", archive(tmp_path / "model.pt", *WEIGHTS))


@pytest.mark.parametrize(
    ("name", "members", "more", "isolated"),
    [
        ("model.pt", SCRIPT, "", False),
        ("model.pt2", EXPORTED, "", False),
        ("model.pt2", PACKAGE, "", True),
        ("model.pt2", PACKAGE, 'parameters { key: "isolation" value { string_value: "thread" } }', False),
        ("model.pt", SCRIPT, 'parameters { key: "isolation" value { string_value: "process" } }', True),
        ("model.py", (), 'runtime: "model.py"', True),
        (
            "model.pt2",
            EXPORTED,
            'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "{}" } }',
            True,
        ),
        ("other.pt", SCRIPT, "", False),
    ],
)
def test_code_and_compiled_packages_run_in_processes_of_their_own(
    tmp_path: Path, name: str, members: tuple[str, ...], more: str, isolated: bool
) -> None:
    archive(tmp_path / "1" / name, *members)
    platform = ' platform: "torch_aoti"' if name == "model.pt2" else ""
    config = parse_text(f'name: "m" backend: "pytorch"{platform} {more}', "test")
    assert runs_in_process(ModelSource("m", 1, tmp_path, config)) is isolated


def test_nothing_of_it_imports_pytorch() -> None:
    code = (
        "import sys, halimede.backends.isolation, halimede.backends.pytorch.package_checks\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def wrapper(*inputs: str) -> str:
    """The part of a wrapper's source that says what it takes, each input as in ``float32 [2..64, 4; 4, 1]``."""
    text = f"    : AOTInductorModelBase({len(inputs)},\n                           1,\n"
    for index, line in enumerate(inputs):
        dtype, _, rest = line.partition(" ")
        sizes, _, strides = rest.strip("[]").partition(";")
        text += f"int32_t a_expected_dtype = aoti_torch_dtype_{dtype}();\n"
        text += f'ss << "input_handles[{index}]: unmatched dtype, "\n'
        facts = []
        for axis, size in enumerate(part for part in sizes.split(",") if part.strip()):
            least, dots, most = size.strip().partition("..")
            if not dots:
                facts.append(("unmatched dim value", axis, f"expected: {least}"))
            if dots and least:
                facts.append(("dim value is too small", axis, f"expected it to be >= {least}"))
            if dots and most:
                facts.append(("dim value is too large", axis, f"expected to be <= {most}"))
        for axis, stride in enumerate(part for part in strides.split(",") if part.strip()):
            if stride.strip() != "*":
                facts.append(("unmatched stride value", axis, f"expected: {stride.strip()}"))
        for what, axis, expected in facts:
            text += (
                f'ss << "input_handles[{index}]: {what} at {axis}, "\n   << "{expected}, " << "but got: "\n'
            )
    return text


def package(path: Path, source: str, **machine: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/data/aotinductor/model/x.wrapper.cpp", source)
        file.writestr("m/data/aotinductor/model/x.wrapper_metadata.json", json.dumps(machine))
    return path


def test_a_package_says_datatypes_sizes_and_machine(tmp_path: Path) -> None:
    source = wrapper("float32 [2..64, 4; 4, 1]", "int64 [.., 3, ..; *, *, 1]", "bfloat16 []")
    checks = read_checks(package(tmp_path / "p", source, AOTI_DEVICE_KEY="cuda"))
    assert checks.inputs == (
        InputCheck(FP32, (Size(2, 64), Size(4, 4))),
        InputCheck(INT64, (Size(), Size(3, 3), Size())),
        InputCheck(BF16, ()),
    )
    assert [each.shape for each in checks.inputs] == [(-1, 4), (-1, 3, -1), ()]
    assert (checks.device, checks.least_rows, checks.most_rows) == ("cuda", 2, 64)


def test_an_input_of_another_order_of_memory_is_remarked(tmp_path: Path) -> None:
    source = wrapper("float32 [.., 3, 8, 8; 192, 1, 24, 3]", "float32 [.., 3, 1, 8; 24, 8, 77, 1]")
    inputs = read_checks(package(tmp_path / "p", source)).inputs
    assert inputs is not None
    assert [each.contiguous for each in inputs] == [False, True]


@pytest.mark.parametrize(
    "source", ["", "int main() {}", "AOTInductorModelBase(2,\n1,", wrapper("complex64 [2; 1]")]
)
def test_a_package_whose_source_says_nothing_has_unknown_inputs(tmp_path: Path, source: str) -> None:
    assert read_checks(package(tmp_path / "p", source)).inputs is None


def test_a_package_for_another_processor_is_refused_with_both_sides(tmp_path: Path) -> None:
    checks = read_checks(
        package(tmp_path / "p", "", AOTI_DEVICE_KEY="cpu", AOTI_CPU_ISA="AVX512 AVX512_VNNI")
    )
    refuse_foreign(checks, frozenset({"avx2", "avx512f", "avx512_vnni"}))
    refuse_foreign(checks, None)
    with pytest.raises(
        InvalidArgumentError,
        match="with AVX512 AVX512_VNNI, and this one has no AVX512_VNNI",
    ):
        refuse_foreign(checks, frozenset({"avx2", "avx512f"}))
