"""`halimede pack`, as a user runs it."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from halimede.cli.sagemaker import pack
from halimede.cli.sagemaker.pack import command
from halimede.repository.archive_layout import read_layout
from halimede.repository.model_archives import extract_model
from halimede.repository.versions import find_versions
from tests.support.commands import call_text_command

ENSEMBLE = 'platform: "ensemble" ensemble_scheduling {{ {} }}'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user is."""
    path = tmp_path / "place"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def write_model(repository: Path, name: str, config: str | None = "", version: str = "1") -> Path:
    model = repository / name
    (model / version).mkdir(parents=True)
    (model / version / "model.onnx").write_bytes(b"weights of " + name.encode())
    if config is not None:
        (model / "config.pbtxt").write_text(config)
    return model


def write_ensemble(repository: Path, name: str, *steps: str) -> Path:
    text = " ".join(f'step {{ model_name: "{step}" model_version: -1 }}' for step in steps)
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(ENSEMBLE.format(text))
    return repository / name


def packed(*arguments: object) -> tuple[str, str]:
    """What is said on standard output and error."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def refusal(*arguments: object) -> str:
    """Why nothing is packed; nothing is left where the user is."""
    before = sorted(Path.cwd().iterdir())
    result = CliRunner().invoke(
        command, [str(argument) for argument in arguments], standalone_mode=False, catch_exceptions=True
    )
    assert result.exception is not None
    assert sorted(Path.cwd().iterdir()) == before
    return result.exception.format_message()  # type: ignore[attr-defined, no-any-return]  # click's


def names(path: Path | str) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


# Layouts


def test_a_model_gets_a_directory_of_its_own_and_the_models_name(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "resnet")
    out, err = packed(model)
    assert err == ""
    size = (place / "resnet.tar.gz").stat().st_size
    assert out == f"resnet.tar.gz: {size} bytes, 1 model: resnet\n"
    assert names("resnet.tar.gz") == ["resnet", "resnet/1", "resnet/1/model.onnx", "resnet/config.pbtxt"]


def test_a_flat_archive_has_the_model_at_its_root(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "resnet", 'name: "called otherwise"')
    packed(model, "--flat", "-o", "m.tar.gz")
    assert names("m.tar.gz") == ["1", "1/model.onnx", "config.pbtxt"]
    extract_model(Path("m.tar.gz"), place / "model")
    assert read_layout(place / "model").models == {"model": place / "model"}


def test_a_repository_is_packed_with_each_of_its_models(place: Path, tmp_path: Path) -> None:
    repository = tmp_path / "search"
    write_model(repository, "tokenizer")
    write_model(repository, "encoder", None, version="3")
    write_ensemble(repository, "pipeline", "tokenizer", "encoder")
    out, err = packed(repository)
    assert err == ""
    assert out.startswith("search.tar.gz: ")
    assert out.endswith(" bytes, 3 models: encoder, pipeline, tokenizer; requests are for pipeline\n")
    extract_model(Path("search.tar.gz"), place / "model")
    layout = read_layout(place / "model", "search")
    assert (layout.entry, set(layout.models)) == ("pipeline", {"tokenizer", "encoder", "pipeline"})
    assert find_versions(layout.models["encoder"]) == [3]
    # git keeps no empty directories, archives do
    assert (place / "model/pipeline/1").is_dir()


def test_where_the_user_is_can_be_packed_under_its_name(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_model(tmp_path, "resnet"))
    packed(".", "-o", place / "m.tar.gz")
    assert names(place / "m.tar.gz")[0] == "resnet"


def test_a_model_in_a_linked_directory_has_the_links_name(place: Path, tmp_path: Path) -> None:
    (place / "link").symlink_to(write_model(tmp_path, "resnet"))
    packed("link/")
    assert names("link.tar.gz")[:2] == ["link", "link/1"]


def test_long_strange_and_many_names_are_kept(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m")
    strange = ["x" * 200, "ü", "\udcff", "a b'c", "new\nline"]
    for name in strange:
        (model / "1" / name).write_text(name.encode(errors="surrogateescape").hex())
    packed(model)
    extract_model(Path("m.tar.gz"), place / "out")
    assert {each.name for each in (place / "out/m/1").iterdir()} == {*strange, "model.onnx"}


# What is packed


def test_the_same_files_make_the_same_bytes(place: Path, tmp_path: Path) -> None:
    for each, time in ((tmp_path / "one", 1), (tmp_path / "two", 2_000_000_000)):
        model = write_model(each, "m")
        for name in ("b", "a") if time == 1 else ("a", "b"):
            (model / "1" / name).write_text(name)
            os.utime(model / "1" / name, (time, time))
        (model / "1" / "a").chmod(0o600 if time == 1 else 0o664)
        (model / "1" / "b").chmod(0o700 if time == 1 else 0o775)
        os.utime(model, (time, time))
        packed(model, "-o", f"{time}.tar.gz")
    assert Path("1.tar.gz").read_bytes() == Path("2000000000.tar.gz").read_bytes()
    with tarfile.open("1.tar.gz") as tar:
        members = tar.getmembers()
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {
        (0, 0, 0, "", "")
    }
    assert {each.name: each.mode for each in members if each.isfile()} == {
        "m/1/a": 0o644,
        "m/1/b": 0o755,
        "m/1/model.onnx": 0o644,
        "m/config.pbtxt": 0o644,
    }


def test_what_programs_and_editors_leave_behind_is_not_packed(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "r", "m")
    for name in ("__pycache__", ".git", ".ipynb_checkpoints"):
        (model / "1" / name).mkdir()
        (model / "1" / name / "x").touch()
    for name in (".DS_Store", "._x", "model.py~", "#x#", ".#x", ".x.swp", ".gitignore", "x.bak"):
        (model / "1" / name).touch()
    (tmp_path / "r" / ".git").mkdir()
    (tmp_path / "r" / "README.md").touch()
    assert packed(tmp_path / "r")[1] == ""
    assert names("r.tar.gz") == [
        "README.md",
        "m",
        "m/1",
        "m/1/.gitignore",
        "m/1/model.onnx",
        "m/1/x.bak",
        "m/config.pbtxt",
    ]


def test_directories_that_are_no_models_are_not_packed_and_that_is_told(place: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "r", "m")
    (tmp_path / "r/docs").mkdir()
    (tmp_path / "r/data").mkdir()
    assert packed(tmp_path / "r")[1] == (
        "halimede: warning: not packed, as they hold neither config.pbtxt nor a numbered version: 'data', 'docs'\n"
    )
    assert names("r.tar.gz")[0] == "m"
    assert "docs" not in names("r.tar.gz")


def test_links_to_what_is_packed_are_kept_and_others_followed(place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/blob").write_text("blob")
    (outside / "deep/to_blob").symlink_to("blob")
    repository = tmp_path / "r"
    one, two = write_model(repository, "one"), write_model(repository, "two")
    (repository / "shared").mkdir()
    (repository / "shared/x").write_text("shared")
    (one / "1/__pycache__").mkdir()
    (one / "1/__pycache__/x").write_text("left out")
    links: dict[str, str | Path] = {
        "one/2": "1",
        "one/1/chain": "other",
        "one/1/other": "../../two/1/model.onnx",
        "one/1/absolute": two / "1/model.onnx",
        "one/1/detour": "../../../r/one/config.pbtxt",
        "one/1/top": "..",
        "one/1/file": outside / "deep/blob",
        "one/1/directory": outside,
        "one/1/shared": "../../shared/x",
        "one/1/cache": "__pycache__/x",
    }
    for name, target in links.items():
        (repository / name).symlink_to(target)
    packed(repository)
    with tarfile.open("r.tar.gz") as tar:
        kept = {each.name: each.linkname for each in tar.getmembers() if each.issym()}
    assert kept == {
        "one/2": "1",
        "one/1/chain": "../../two/1/model.onnx",
        "one/1/other": "../../two/1/model.onnx",
        "one/1/absolute": "../../two/1/model.onnx",
        "one/1/detour": "../config.pbtxt",
        "one/1/top": "..",
    }
    extract_model(Path("r.tar.gz"), place / "out")
    for name in links:
        found = place / "out" / name
        assert found.exists()
        if found.is_file():
            assert found.read_bytes() == (repository / name).read_bytes()
    for name in ("blob", "to_blob"):
        assert (place / "out/one/1/directory/deep" / name).read_text() == "blob"


@pytest.mark.parametrize(
    ("name", "target", "text"),
    [
        ("gone", "nowhere", "links to 'nowhere', which cannot be packed: No such file or directory"),
        ("circle", "circle", "links to 'circle', which cannot be packed: Too many levels of symbolic links"),
        ("up", "../../..", "/r' links to a directory that holds it"),
        ("device", "/dev/null", "device' is neither a file nor a directory"),
    ],
)
def test_a_link_that_cannot_be_packed_is_named(
    place: Path, tmp_path: Path, name: str, target: str, text: str
) -> None:
    model = write_model(tmp_path / "r", "m")
    (model / "1" / name).symlink_to(target)
    assert text in refusal(tmp_path / "r")


def test_a_pipe_is_refused(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m")
    os.mkfifo(model / "1/pipe")
    assert refusal(model) == f"'{model}/1/pipe' is neither a file nor a directory"


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"x"), lambda path: os.utime(path, (1, 1))])
def test_a_file_that_changes_meanwhile_is_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    path = write_model(tmp_path, "m") / "1/model.onnx"
    addfile = tarfile.TarFile.addfile

    def change_first(tar: tarfile.TarFile, info: tarfile.TarInfo, data: io.BytesIO | None = None) -> None:
        if info.isfile():
            change(path)
        addfile(tar, info, data)

    monkeypatch.setattr(tarfile.TarFile, "addfile", change_first)
    assert refusal(tmp_path / "m") == f"'{path}' was changed while it was packed"


# What is wrong with models


def test_a_directory_without_models_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "d/below").mkdir(parents=True)
    text = refusal(tmp_path / "d")
    assert text.startswith(
        f"there is no model in '{tmp_path}/d': neither config.pbtxt nor a numbered version"
    )


def test_a_directory_that_is_not_there_is_refused(place: Path) -> None:
    assert "Directory 'no' does not exist" in refusal("no")


def test_a_configuration_that_is_broken_is_told_as_check_does(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m", 'name: "m"\nmax_batch_siz: 4\n')
    path = model / "config.pbtxt"
    assert refusal(model) == (
        f"{path}:2: failed to read text proto from {path}: line 2, column 1: 'max_batch_siz' is not a field of "
        "ModelConfig; did you mean 'max_batch_size'?\n    fix: max_batch_size: 4"
    )
    checked = call_text_command("check", str(tmp_path)).stdout
    assert checked.startswith(refusal(model))


def test_a_configuration_that_is_no_text_is_told(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m")
    (model / "config.pbtxt").write_bytes(b"\xff")
    assert "it is not UTF-8" in refusal(model)


def test_a_name_that_is_not_the_directorys_is_told(place: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "r", "m", '\nname: "n"')
    assert refusal(tmp_path / "r") == (
        f"{tmp_path}/r/m/config.pbtxt:2: the model is called 'n', and its directory 'm'; they must be the same\n"
        '    fix: name: "m"'
    )


def test_a_model_without_a_version_is_told(place: Path, tmp_path: Path) -> None:
    (tmp_path / "m/01").mkdir(parents=True)
    config = tmp_path / "m/config.pbtxt"
    config.touch()
    fix = f"\n    fix: make the directory {tmp_path}/m/1"
    assert refusal(tmp_path / "m") == f"'{tmp_path}/m' has no version{fix} and put the model's file into it"
    config.write_text('platform: "ensemble"')
    assert refusal(tmp_path / "m") == f"'{tmp_path}/m' has no version{fix}"
    (tmp_path / "m/4").mkdir()
    config.write_text("\nversion_policy { specific { versions: [5] } }")
    assert refusal(tmp_path / "m") == (
        f"{config}:2: '{tmp_path}/m' has no version: it has 4, and its version policy selects none of them"
    )


def test_flat_takes_one_model_with_a_configuration(place: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "r", "m")
    assert refusal(tmp_path / "r", "--flat") == (
        f"--flat takes the directory of one model; '{tmp_path}/r' is one of models' directories: 'm'"
    )
    model = write_model(tmp_path, "bare", None)
    assert refusal(model, "--flat").startswith(f"--flat needs {model}/config.pbtxt: ")


def test_steps_that_are_not_packed_are_told(place: Path, tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, "e", "a", "b")
    assert packed(ensemble)[1] == "".join(
        f"halimede: warning: ensemble 'e' needs '{step}', which is not packed; pack the directory that holds both\n"
        for step in "ab"
    )


def test_it_is_told_if_nobody_can_tell_which_model_requests_are_for(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path / "r", name)
    out, err = packed(tmp_path / "r")
    assert err.startswith(
        "halimede: warning: for a multi-model endpoint, the archive holds 2 models and no ensemble ('a', 'b')"
    )
    assert out.endswith("2 models: a, b\n")
    out, err = packed(tmp_path / "r", "-o", "b.tar.gz")
    assert err == ""
    assert out.endswith("2 models: a, b; requests are for b\n")


# The archive's place


def test_an_archive_that_is_there_is_only_overwritten_by_force(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m")
    Path("m.tar.gz").write_text("mine")
    assert refusal(model) == "'m.tar.gz' is there already; --force overwrites it"
    assert Path("m.tar.gz").read_text() == "mine"
    packed(model, "--force")
    assert names("m.tar.gz")[0] == "m"
    assert [each.name for each in place.iterdir()] == ["m.tar.gz"]


def test_an_archive_may_not_lie_in_what_is_packed(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path, "m")
    (place / "link").symlink_to(model / "1")
    for output in (model / "x.tar.gz", "link/x.tar.gz"):
        assert "which is packed; name a place outside" in refusal(model, "-o", output)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("m.zip", "--output: 'm.zip' must end in .tar.gz; SageMaker takes nothing else"),
        (".tar.gz", "--output: '.tar.gz' must end in .tar.gz"),
        ("no/m.tar.gz", "--output: there is no directory 'no'"),
        ("d.tar.gz", "--output: 'd.tar.gz' is a directory"),
    ],
)
def test_a_place_where_no_archive_can_be_is_refused(
    place: Path, tmp_path: Path, output: str, text: str
) -> None:
    (place / "d.tar.gz").mkdir()
    assert refusal(write_model(tmp_path, "m"), "-o", output).startswith(text)


def test_a_full_disk_leaves_nothing_behind_and_the_old_archive_in_place(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path, "m")
    (model / "1/model.onnx").write_bytes(os.urandom(100_000))
    Path("m.tar.gz").write_text("mine")
    opened = Path.open

    def full(path: Path, mode: str = "r", **more: int) -> object:
        if mode == "xb":
            opened(path, mode).close()
            return Path("/dev/full").open("wb")
        return opened(path, mode, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    assert refusal(model, "--force") == "cannot write 'm.tar.gz': No space left on device"
    assert Path("m.tar.gz").read_text() == "mine"


def test_an_archive_is_as_readable_as_other_files(place: Path, tmp_path: Path) -> None:
    packed(write_model(tmp_path, "m"))
    Path("other").touch()
    assert Path("m.tar.gz").stat().st_mode == Path("other").stat().st_mode


# What is told on the way


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1234, "1.2 kB"), (5_600_000, "5.6 MB"), (7_800_000_000, "7.8 GB")],
)
def test_sizes_are_told_in_short(size: int, text: str) -> None:
    assert pack._size(size) == text  # noqa: SLF001 - archives of these sizes would take minutes


def test_names_cannot_play_with_the_terminal(place: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "r", "m")
    (tmp_path / "r/\x1b[2J\udcff").mkdir()
    assert r"\x1b[2J\udcff" in packed(tmp_path / "r")[1]


def test_the_command_is_there() -> None:
    result = call_text_command("pack", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: halimede pack [OPTIONS] DIR\n")
