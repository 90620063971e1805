"""Which model a single-model endpoint serves, by what lies in its model directory."""

import tarfile
from pathlib import Path

import click
import pytest

from halimede.cli.sagemaker.models import SingleModel, find_single_model

NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
STRUCTURE = "Incorrect directory structure. Model directory needs to contain the top level folder: "


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What stands for /opt/ml/model."""
    path = tmp_path / "ml" / "model"
    path.mkdir(parents=True)
    return path


def write(repository: Path, *names: str) -> None:
    """Models of those names."""
    for name in names:
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text('backend: "identity"')


def pack(archive: Path, *names: str, root: bool = False) -> None:
    """An archive of models of those names, or with one model's files at its top."""
    source = archive.parent.parent / f"of {archive.name}"
    source.mkdir()
    write(source, *names)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source / names[0] if root else source, ".")


def find(directory: Path, wanted: str = "") -> SingleModel:
    def scratch() -> Path:
        path = directory.parent / "scratch"
        path.mkdir()
        return path

    return find_single_model(directory, wanted, scratch)


def refusal(directory: Path, wanted: str = "") -> str:
    """The one line that a model directory earns."""
    with pytest.raises(click.UsageError) as caught:
        find(directory, wanted)
    message = caught.value.format_message()
    assert "\n" not in message
    return message


def test_only_model_is_served_and_the_log_says_which(directory: Path) -> None:
    write(directory, "digits")
    (directory / "README.txt").touch()

    assert find(directory) == SingleModel(
        directory, "digits", f"No {NAME} provided. Starting with the only existing model directory digits"
    )
    assert not (directory.parent / "scratch").exists()


def test_named_model_is_served_among_others(directory: Path) -> None:
    write(directory, "tokenizer", "encoder", "search")

    assert find(directory, "search") == SingleModel(directory, "search", "")


def test_directory_that_an_editor_left_is_no_model(directory: Path) -> None:
    write(directory, "digits")
    (directory / ".ipynb_checkpoints").mkdir()

    assert find(directory).name == "digits"


def test_model_without_a_configuration_is_a_model(directory: Path) -> None:
    (directory / "auto" / "1").mkdir(parents=True)

    assert find(directory).name == "auto"


def test_model_that_is_called_by_a_number_is_a_model(directory: Path) -> None:
    write(directory, "7")

    assert find(directory).name == "7"


def test_model_directory_that_is_missing_is_named(directory: Path) -> None:
    directory.rmdir()
    assert refusal(directory) == (
        f"'{directory}' does not exist; it must hold the model, as NAME/config.pbtxt; "
        "SAGEMAKER_BASE_DIR names the directory above it"
    )
    directory.touch()
    assert refusal(directory).startswith(f"'{directory}' is not a directory; ")


def test_configuration_at_the_top_is_an_incorrect_directory_structure(directory: Path) -> None:
    write(directory.parent, "model/digits")
    (directory / "config.pbtxt").touch()

    for wanted in ("", "digits"):
        assert refusal(directory, wanted) == (
            "Incorrect directory structure. Model directory needs to contain the top level folder: config.pbtxt lies "
            "at the top of the model directory or archive, and not in NAME/, with NAME/config.pbtxt and NAME/1/"
        )


def test_version_at_the_top_is_an_incorrect_directory_structure(directory: Path) -> None:
    (directory / "1").mkdir()
    (directory / "1" / "model.onnx").touch()

    assert refusal(directory).startswith(f"{STRUCTURE}a numbered version lies at the top")


def test_no_model_is_an_error(directory: Path) -> None:
    (directory / "model.onnx").touch()

    assert refusal(directory) == (
        f"No model found in model repository: '{directory}' must hold a model's directory, with NAME/config.pbtxt and "
        "NAME/1/"
    )


def test_several_models_and_no_name_is_an_error_that_lists_them(directory: Path) -> None:
    write(directory, "b", "a")

    assert refusal(directory) == (
        f"More than 1 model directory found in model repository. '{directory}' holds 'a', 'b'; {NAME} must name one of "
        "them"
    )


@pytest.mark.parametrize("wanted", ["c", "A", "*", "..", "a/1", "../model/a"])
def test_name_of_no_model_is_an_error_that_lists_them(directory: Path, wanted: str) -> None:
    write(directory, "a", "b")

    assert refusal(directory, wanted) == (
        f"Directory with provided {NAME} {wanted} does not exist: '{directory}' holds 'a', 'b'"
    )


def test_name_where_there_is_no_model_says_so(directory: Path) -> None:
    assert (
        refusal(directory, "a")
        == f"Directory with provided {NAME} a does not exist: '{directory}' holds no directory"
    )


def test_archive_that_no_platform_extracted_is_served_from_a_copy(directory: Path) -> None:
    pack(directory / "model.tar.gz", "digits")

    found = find(directory)

    assert found.repository == directory.parent / "scratch" / "model"
    assert found.name == "digits"
    assert (found.repository / "digits" / "config.pbtxt").is_file()
    assert [path.name for path in directory.iterdir()] == ["model.tar.gz"]


def test_archive_beside_a_model_is_left_alone(directory: Path) -> None:
    write(directory, "digits")
    pack(directory / "model.tar.gz", "other")

    assert find(directory).repository == directory


def test_of_several_archives_none_is_taken(directory: Path) -> None:
    pack(directory / "a.tar.gz", "a")
    pack(directory / "b.tar.gz", "b")

    assert refusal(directory).startswith(f"No model found in model repository: '{directory}' must")


def test_errors_of_an_archives_models_name_the_archive(directory: Path) -> None:
    archive = directory / "model.tar.gz"
    pack(archive, "a", "b")

    assert (
        refusal(directory)
        == f"More than 1 model directory found in model repository. '{archive}' holds 'a', 'b'; {NAME} must name one "
        "of them"
    )


def test_archive_with_a_model_at_its_top_is_an_incorrect_directory_structure(directory: Path) -> None:
    pack(directory / "model.tar.gz", "a", root=True)

    assert refusal(directory).startswith(f"{STRUCTURE}config.pbtxt lies at the top")


def test_archive_that_is_broken_is_an_error(directory: Path) -> None:
    (directory / "model.tar.gz").write_bytes(b"no archive")

    assert f"model archive '{directory / 'model.tar.gz'}'" in refusal(directory)
    assert list((directory.parent / "scratch").iterdir()) == []
