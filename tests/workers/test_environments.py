import ast
import io
import logging
import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from halimede.backends.base import BackendOptions, ModelSource
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.steps import watched_by
from halimede.repository.private_directories import remove_abandoned
from halimede.workers.environments import Environment, Environments
from tests.support.steps import SeenSteps
from tests.workers.environment_models import model, pack, virtual_environment
from tests.workers.zygotes import nursery, told

OPTIONS = BackendOptions()

SERVER = """
import sys, threading
from pathlib import Path
from halimede.backends.base import BackendOptions
from halimede.workers.environments import Environments
from tests.workers.environment_models import model
environments = Environments()
environment = environments.prepare(model(Path(sys.argv[1]), environment=sys.argv[2]), BackendOptions())
print(environment.python, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def environments(temporary: Path) -> Iterator[Environments]:
    made = Environments()
    yield made
    made.close()
    assert list(temporary.iterdir()) == []


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return pack(virtual_environment(tmp_path / "venv"), tmp_path / "env.tar.gz")


def prepared(environments: Environments, source: ModelSource, **settings: str) -> Environment:
    options = BackendOptions({name.replace("_", "-"): value for name, value in settings.items()})
    environment = environments.prepare(source, options)
    assert environment is not None
    return environment


def extracted(temporary: Path) -> list[Path]:
    """The directories with archives' contents."""
    return sorted(each for each in temporary.glob("halimede-environments-*/*") if each.is_dir())


# What a model gets


def test_a_model_without_an_environment_gets_none(environments: Environments, tmp_path: Path) -> None:
    assert environments.prepare(model(tmp_path), OPTIONS) is None
    assert environments.prepare(model(tmp_path, environment=""), OPTIONS) is None


def test_a_directory_is_used_as_it_is(
    environments: Environments, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    directory = virtual_environment(tmp_path / "env")
    environment = prepared(environments, model(tmp_path, environment=directory))
    assert environment.python == directory / "bin/python"
    assert environment.variables == {
        "VIRTUAL_ENV": str(directory),
        "VIRTUAL_ENV_PROMPT": "env",
        "PATH": f"{directory}/bin:/usr/bin",
        "LD_LIBRARY_PATH": f"{directory}/lib",
        "PYTHONHOME": None,
    }
    assert list(temporary.iterdir()) == []
    environment.release()
    assert environment.python.exists()


def test_libraries_that_the_server_was_told_of_come_after_the_environments(
    environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    directory = virtual_environment(tmp_path / "env")
    environment = prepared(environments, model(tmp_path, environment=directory))
    assert environment.variables["LD_LIBRARY_PATH"] == f"{directory}/lib:/opt/lib"


def test_one_directory_under_two_names_is_one_environment(environments: Environments, tmp_path: Path) -> None:
    directory = virtual_environment(tmp_path / "env")
    (tmp_path / "alias").symlink_to(directory)
    names = directory, f"{tmp_path}/m/../alias/"
    first, second = (prepared(environments, model(tmp_path, environment=each)) for each in names)
    assert (first.python, first.variables) == (second.python, second.variables)


def test_an_interpreter_may_be_called_python3_only(environments: Environments, tmp_path: Path) -> None:
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python3").symlink_to(sys.executable)
    environment = prepared(environments, model(tmp_path, environment=tmp_path / "env"))
    assert environment.python == tmp_path / "env/bin/python3"


def test_the_models_directory_may_stand_anywhere_in_the_path(
    environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model(tmp_path, "m", "$$TRITON_MODEL_DIRECTORY/env")
    directory = virtual_environment(tmp_path / "m/env")
    assert prepared(environments, source).python == directory / "bin/python"
    other = model(tmp_path, "other", "/$$TRITON_MODEL_DIRECTORY/../m/env")
    assert prepared(environments, other).python == directory / "bin/python"
    monkeypatch.chdir(tmp_path)
    relative = model(Path(), "m", "$$TRITON_MODEL_DIRECTORY/env")
    assert prepared(environments, relative).python == directory / "bin/python"


def test_workers_run_in_an_extracted_environment(
    environments: Environments, packed: Path, tmp_path: Path
) -> None:
    environment = prepared(environments, model(tmp_path, environment=packed))
    with nursery() as workers:
        process = workers.spawn("tell", environment=environment.variables, python=environment.python)
        report = told(process)
        workers.end(process)
    packages = (
        f"{environment.variables['VIRTUAL_ENV']}/lib/python{sysconfig.get_python_version()}/site-packages"
    )
    assert packages in report["path"]
    environment.release()


def test_an_extracted_environment_is_told_where_it_lies(
    environments: Environments, tmp_path: Path, packed: Path
) -> None:
    unpack = """
import os, sys
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(os.path.join(root, "told"), "w") as file:
    file.write(repr([root, sys.executable, os.environ["VIRTUAL_ENV"]]))
"""
    pack(tmp_path / "venv", packed, bin__conda_unpack=unpack)
    environment = prepared(environments, model(tmp_path, environment=packed))
    directory = Path(environment.variables["VIRTUAL_ENV"] or "")
    assert ast.literal_eval((directory / "told").read_text()) == [
        str(directory),
        str(environment.python),
        str(directory),
    ]
    environment.release()


# What is shared and what is removed


def test_an_archive_is_extracted_once_for_all_models_and_removed_after_the_last(
    environments: Environments,
    packed: Path,
    tmp_path: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copy = tmp_path / "copy.tar.gz"
    copy.write_bytes(packed.read_bytes())
    sources = [model(tmp_path, f"m{i}", (packed, copy)[i % 2]) for i in range(8)]
    with caplog.at_level(logging.INFO, "halimede"), ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda source: prepared(environments, source), sources))
    assert len({(each.python, frozenset(each.variables.items())) for each in found}) == 1
    assert caplog.text.count("Extracting Python execution env ") == 1
    assert caplog.text.count(f"Using Python execution env {packed}") == 4
    for each in found[:-1]:
        each.release()
    assert found[-1].python.exists()
    found[-1].release()
    assert extracted(temporary) == []


def test_a_changed_archive_is_extracted_anew_and_the_old_one_stays_while_it_is_used(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path
) -> None:
    old = prepared(environments, model(tmp_path, environment=packed))
    pack(tmp_path / "venv", packed, version="2")
    new = prepared(environments, model(tmp_path, environment=packed))
    assert old.python != new.python
    assert old.python.exists()
    old.release()
    assert not old.python.exists()
    assert (new.python.parent.parent / "version").read_text() == "2"
    assert extracted(temporary) == [new.python.parent.parent]
    new.release()


def test_only_the_servers_user_can_enter_what_was_extracted(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path
) -> None:
    environment = prepared(environments, model(tmp_path, environment=packed))
    (private,) = temporary.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    environment.release()


def test_closing_removes_what_is_still_there(packed: Path, tmp_path: Path, temporary: Path) -> None:
    environments = Environments()
    environment = prepared(environments, model(tmp_path, environment=packed))
    environments.close()
    assert list(temporary.iterdir()) == []
    environment.release()
    environments.close()
    with pytest.raises(InternalError, match="the server is stopping"):
        environments.prepare(model(tmp_path, environment=packed), OPTIONS)
    assert list(temporary.iterdir()) == []


def test_what_a_killed_server_left_is_removed_by_the_next_but_not_what_a_living_one_uses(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path
) -> None:
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, tmp_path / f"repository{i}", packed],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": ":".join(filter(None, sys.path))},
        )
        for i in range(2)
    ]
    pythons = []
    for server in servers:
        assert server.stdout is not None
        pythons.append(Path(server.stdout.readline().decode().strip()))
    for python in pythons:
        os.utime(python.parent.parent.parent, (1, 1))  # no longer young
    dead, living = servers
    dead.kill()
    dead.communicate()
    environment = prepared(environments, model(tmp_path, environment=packed))
    assert [python.exists() for python in pythons] == [False, True]
    environment.release()
    living.kill()
    living.communicate()
    remove_abandoned(temporary, "halimede-environments-")
    assert not pythons[1].exists()


def test_in_a_cache_directory_environments_stay_and_servers_share_them(
    packed: Path, tmp_path: Path, temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = model(tmp_path, environment=packed)
    cache = tmp_path / "cache"
    servers = [Environments() for _ in range(3)]
    with caplog.at_level(logging.INFO, "halimede"):
        with ThreadPoolExecutor(3) as threads:
            found = list(
                threads.map(
                    lambda each: prepared(each, source, environment_cache_directory=str(cache)), servers
                )
            )
        for server, environment in zip(servers, found, strict=True):
            environment.release()
            server.close()
        again = Environments()
        environment = prepared(again, source, environment_cache_directory=str(cache))
        environment.release()
        again.close()
    assert {each.python for each in found} == {environment.python}
    assert environment.python.is_relative_to(cache / "archives")
    assert environment.python.exists()
    assert caplog.text.count("Extracting") == 1
    assert list(temporary.iterdir()) == []


def test_an_extraction_that_was_cut_off_is_begun_anew(
    environments: Environments, packed: Path, tmp_path: Path
) -> None:
    source, cache = model(tmp_path, environment=packed), str(tmp_path / "cache")
    environment = prepared(environments, source, environment_cache_directory=cache)
    directory = environment.python.parent.parent
    # as a server leaves it that is killed on the way
    (directory / ".halimede-complete").unlink()
    (directory / "pyvenv.cfg").unlink()
    (directory / "half").touch()
    assert prepared(environments, source, environment_cache_directory=cache).python == environment.python
    assert (directory / "pyvenv.cfg").exists()
    assert not (directory / "half").exists()


# What is refused


def refusal(environments: Environments, source: ModelSource, **settings: str) -> str:
    with pytest.raises(HalimedeError) as caught:
        prepared(environments, source, **settings)
    return str(caught.value)


def test_a_relative_path_is_refused_with_what_would_be_right(
    environments: Environments, tmp_path: Path
) -> None:
    with pytest.raises(InternalError) as caught:
        prepared(environments, model(tmp_path, environment="envs/a.tar.gz"))
    assert str(caught.value) == (
        "Failed to get the canonical path for envs/a.tar.gz. The parameter EXECUTION_ENV_PATH of model 'm' must be an "
        "absolute path, or begin with $$TRITON_MODEL_DIRECTORY, such as $$TRITON_MODEL_DIRECTORY/envs/a.tar.gz"
    )


def test_a_path_that_is_not_there_is_named(environments: Environments, tmp_path: Path) -> None:
    path = tmp_path / "none.tar.gz"
    assert refusal(environments, model(tmp_path, environment=path)) == (
        f"Failed to get the canonical path for {path}."
    )
    beside = refusal(environments, model(tmp_path, environment="$$TRITON_MODEL_DIRECTORY/../none.tar.gz"))
    assert beside.startswith("Failed to get the canonical path for /")
    assert beside.endswith(
        "/../none.tar.gz. It leads out of a directory by '..'. If the model repository is in a bucket, only "
        "the model's own directory is downloaded, so place the environment there: $$TRITON_MODEL_DIRECTORY/none.tar.gz"
    )
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(environments, model(tmp_path, environment=tmp_path / "loop")) == (
        f"Failed to get the canonical path for {tmp_path}/loop."
    )


def test_a_directory_that_is_no_environment_is_refused(environments: Environments, tmp_path: Path) -> None:
    directory = tmp_path / "env"
    (directory / "bin").mkdir(parents=True)
    source = model(tmp_path, environment=directory)
    assert refusal(environments, source) == (
        f"Path {directory}/bin/activate does not exist. "
        "The Python environment should contain an 'activate' script."
    )
    (directory / "bin/activate").touch()
    assert refusal(environments, source) == (
        f"the Python environment has no interpreter: '{directory}/bin/python' does not exist"
    )
    (directory / "bin/python").symlink_to("/opt/elsewhere/python3.9")
    assert refusal(environments, source) == (
        f"the Python environment has no interpreter: '{directory}/bin/python' is a link to "
        "'/opt/elsewhere/python3.9', which does not exist on this machine"
    )


def test_an_archive_without_an_interpreter_is_refused_and_leaves_nothing(
    environments: Environments, tmp_path: Path, temporary: Path
) -> None:
    (tmp_path / "empty").mkdir()
    path = pack(tmp_path / "empty", tmp_path / "empty.tar.gz")
    text = refusal(environments, model(tmp_path, environment=path))
    assert "bin/activate does not exist. The Python environment should contain" in text
    assert extracted(temporary) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("../../outside", "Path contains '..': '../../outside'"), ("/tmp/outside", "Path is absolute")],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path, name: str, text: str
) -> None:
    hostile = tmp_path / "hostile.tar.gz"
    with tarfile.open(hostile, "w:gz") as tar:
        tar.add(tmp_path / "venv", ".")
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    cache = tmp_path / "cache"
    for settings in ({}, {"environment_cache_directory": str(cache)}):
        said = refusal(environments, model(tmp_path, environment=hostile), **settings)
        assert said.startswith(f"cannot extract the Python environment '{hostile}': {text}")
    assert extracted(temporary) == []
    assert [each for each in (cache / "archives").iterdir() if each.is_dir()] == []
    # and a good one goes on being good
    prepared(environments, model(tmp_path, environment=packed)).release()


def test_a_truncated_archive_is_refused_and_leaves_nothing(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path
) -> None:
    packed.write_bytes(packed.read_bytes()[:-100])
    text = refusal(environments, model(tmp_path, environment=packed))
    assert text.startswith(f"cannot extract the Python environment '{packed}': it is truncated or damaged: ")
    assert extracted(temporary) == []


def test_a_file_that_is_no_archive_is_refused(environments: Environments, tmp_path: Path) -> None:
    path = tmp_path / "env.tar.gz"
    path.write_text("version https://git-lfs.github.com/spec/v1\n" * 20)
    assert "it is no tar archive" in refusal(environments, model(tmp_path, environment=path))


def test_a_file_that_cannot_be_read_is_named(environments: Environments, tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        text = refusal(environments, model(tmp_path, environment=path))
    assert text == f"cannot read the Python environment '{path}': No such device or address"


def test_an_environment_that_cannot_be_told_where_it_lies_is_refused(
    environments: Environments, packed: Path, tmp_path: Path, temporary: Path
) -> None:
    pack(tmp_path / "venv", packed, bin__conda_unpack="raise ValueError('negative padding')")
    text = refusal(environments, model(tmp_path, environment=packed))
    assert "/bin/conda-unpack', by '" in text
    assert "failed: exited with status 1:\n" in text
    assert text.endswith("ValueError: negative padding")
    assert extracted(temporary) == []


def test_a_directory_that_cannot_be_made_is_named(
    environments: Environments, packed: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    text = refusal(
        environments,
        model(tmp_path, environment=packed),
        environment_cache_directory=str(tmp_path / "file"),
    )
    assert text.startswith(f"cannot make the directory '{tmp_path}/file/archives/")
    assert text.endswith("': Not a directory")


def test_settings_that_are_none_are_refused(environments: Environments, tmp_path: Path) -> None:
    assert refusal(environments, model(tmp_path), environment_cache_directory="") == (
        "--backend-config=python,environment-cache-directory must be a directory; it is empty"
    )
    assert refusal(environments, model(tmp_path), install_requirements="no") == (
        "--backend-config=python,install-requirements must be true or false; got 'no'"
    )


def test_closing_stops_what_is_being_made(packed: Path, tmp_path: Path, temporary: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    pack(
        tmp_path / "venv",
        packed,
        bin__conda_unpack=f"import time; open({str(begun)!r}, 'w'); time.sleep(1000)",
    )
    environments = Environments()
    errors: list[BaseException] = []

    def prepare() -> None:
        try:
            prepared(environments, model(tmp_path, environment=packed))
        except InternalError as error:
            errors.append(error)

    # one makes it, the other waits for that
    threads = [threading.Thread(target=prepare) for _ in range(2)]
    for thread in threads:
        thread.start()
    with begun.open():
        pass
    environments.close()
    for thread in threads:
        thread.join(60)
    assert [str(error) for error in errors] == ["the server is stopping"] * 2
    assert list(temporary.iterdir()) == []


def test_how_far_an_archive_is_extracted_can_be_watched(
    environments: Environments, packed: Path, tmp_path: Path
) -> None:
    seen = SeenSteps()
    with watched_by(seen):
        prepared(environments, model(tmp_path, environment=str(packed))).release()
    size = packed.stat().st_size
    assert seen.ended_steps == [("Reading env.tar.gz", size, size), ("Extracting env.tar.gz", size, size)]
