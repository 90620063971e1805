import json
import logging
import site
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import orjson
import pytest

from halimede.backends.base import BackendOptions, ModelSource
from halimede.core.errors import InternalError
from halimede.workers import virtual_environments
from halimede.workers.environments import Environment, Environments
from halimede.workers.programs import ProgramError, Programs
from tests.workers import environment_models
from tests.workers.environment_models import model, wheel


@pytest.fixture
def environments() -> Iterator[Environments]:
    made = Environments()
    yield made
    made.close()


class Builds:
    """Counts what is run to build virtual environments, in place of running it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[list[str]] = []
        self.fail = ""
        monkeypatch.setattr(Programs, "run", lambda _, *given, **more: self.run(*given, **more))

    def run(self, arguments: list[str | Path], *_: object, **__: object) -> None:
        self.runs.append([str(each) for each in arguments])
        if "venv" in arguments:
            directory = Path(arguments[-1])
            environment_models.virtual_environment(directory)
        elif self.fail:
            raise ProgramError("exited with status 1", [self.fail])

    @property
    def count(self) -> int:
        """How often pip was run."""
        return sum("pip" in run for run in self.runs)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    return Builds(monkeypatch)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def prepare(environments: Environments, source: ModelSource, cache: Path, **settings: str) -> Environment:
    chosen = {"environment-cache-directory": str(cache)}
    chosen |= {name.replace("_", "-"): value for name, value in settings.items()}
    environment = environments.prepare(source, BackendOptions(chosen))
    assert environment is not None
    return environment


def requiring(directory: Path, text: str, name: str = "m") -> ModelSource:
    source = model(directory, name)
    (source.version_directory / "requirements.txt").write_text(text)
    return source


def built(cache: Path) -> list[Path]:
    return [each for each in (cache / "venvs").iterdir() if each.is_dir()]


# With the real pip


def test_what_a_model_requires_is_installed_beside_the_servers_packages(
    environments: Environments, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wheels = tmp_path / "m" / "wheels"
    wheels.mkdir(parents=True)
    wheel(wheels, "triton_of_neptune", "1.0", "SIZE = 2707", requires="numpy>=1")
    # the server has that as well, in another version
    wheel(wheels, "httptools", "0.0.1", "OURS = True")
    text = "--no-index\n--find-links ../wheels\ntriton-of-neptune\nhttptools==0.0.1\n"
    with caplog.at_level(logging.INFO, "halimede"):
        environment = prepare(environments, requiring(tmp_path, text), cache)
    probe = (
        "import json, sys, httptools, numpy, orjson, triton_of_neptune; "
        "print(json.dumps([triton_of_neptune.SIZE, httptools.OURS, numpy.__file__, orjson.__file__]))"
    )
    lines: list[str] = []
    programs = Programs()
    programs.run([environment.python, "-c", probe], environment.variables, on_line=lines.append)
    assert json.loads(lines[-1]) == [2707, True, np.__file__, orjson.__file__]
    assert (
        f"model 'm': installing what '{tmp_path}/m/1/requirements.txt' asks for into '{cache}" in caplog.text
    )
    assert "model 'm': pip: Successfully installed " in caplog.text


def test_what_cannot_be_installed_is_told_in_pips_words_and_leaves_nothing(
    environments: Environments, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "--no-index\nno-such-package-of-mine==1.2\n")
    with pytest.raises(InternalError) as caught:
        prepare(environments, source, cache)
    assert str(caught.value).startswith(
        f"model 'm': cannot install what '{tmp_path}/m/1/requirements.txt' asks for: exited with status 1:\n"
    )
    assert "ERROR: No matching distribution found for no-such-package-of-mine==1.2" in str(caught.value)
    assert built(cache) == []


def test_what_lies_beside_the_requirements_does_not_disturb_pip(
    environments: Environments, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "--no-index\nnumpy\n")
    (source.version_directory / "logging.py").write_text("raise RuntimeError('not me')")
    assert prepare(environments, source, cache).python.exists()


# What is built, and when


def test_one_content_is_built_once_for_all_models_and_servers(
    builds: Builds, tmp_path: Path, cache: Path
) -> None:
    sources = [requiring(tmp_path, "numpy\n", f"m{i}") for i in range(6)]
    servers = [Environments() for _ in range(2)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda i: prepare(servers[i % 2], sources[i], cache), range(6)))
    assert builds.count == 1
    assert len({(each.python, frozenset(each.variables.items())) for each in found}) == 1
    for server in servers:
        server.close()
    assert found[0].python.exists()


def test_other_content_is_another_environment(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "numpy\n")
    first = prepare(environments, source, cache)
    requiring(tmp_path, "numpy\nhttptools\n")
    second = prepare(environments, source, cache)
    assert first.python != second.python
    assert first.python.exists()
    assert builds.count == 2


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("-r more.txt", "more.txt"),
        ("--constraint=more.txt", "more.txt"),
        ("./mine-1.0-py3-none-any.whl", "mine-1.0-py3-none-any.whl"),
        ("mine[all] @ file://{directory}/mine.whl", "mine.whl"),
        ("--find-links wheels", "wheels"),
    ],
)
def test_a_change_of_a_file_that_the_requirements_name_counts(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path, line: str, file: str
) -> None:
    directory = tmp_path / "m" / "1"
    source = requiring(tmp_path, line.format(directory=directory) + "\n")
    found = [prepare(environments, source, cache)]
    (directory / file).write_text("numpy")
    found.append(prepare(environments, source, cache))
    (directory / file).write_text("numpy==2")
    found += [prepare(environments, source, cache) for _ in range(2)]
    assert len({each.python for each in found}) == 3


def test_files_that_name_each_other_are_read_once(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "-r more.txt\n# ./comment\n")
    (source.version_directory / "more.txt").write_text("-r requirements.txt\n")
    prepare(environments, source, cache)
    assert builds.count == 1


def test_a_change_of_the_servers_packages_counts(
    environments: Environments,
    builds: Builds,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages = tmp_path / "site-packages"
    (packages / "numpy-1.26.4.dist-info").mkdir(parents=True)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    source = requiring(tmp_path, "numpy\n")
    first = prepare(environments, source, cache)
    (packages / "numpy-1.26.4.dist-info").rename(packages / "numpy-2.3.0.dist-info")
    assert prepare(environments, source, cache).python != first.python


def test_requirements_of_the_version_go_before_those_of_the_model(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path
) -> None:
    source = model(tmp_path)
    (source.directory / "requirements.txt").write_text("numpy\n")
    prepare(environments, source, cache)
    requiring(tmp_path, "httptools\n")
    prepare(environments, source, cache)
    assert [run[-1] for run in builds.runs if "pip" in run] == [
        f"{tmp_path}/m/requirements.txt",
        f"{tmp_path}/m/1/requirements.txt",
    ]


def test_an_environment_that_is_named_goes_before_requirements_with_a_warning(
    environments: Environments,
    builds: Builds,
    tmp_path: Path,
    cache: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    requiring(tmp_path, "numpy\n")
    directory = environment_models.virtual_environment(tmp_path / "env")
    with caplog.at_level(logging.WARNING, "halimede"):
        environment = prepare(environments, model(tmp_path, environment=directory), cache)
    assert environment.python == directory / "bin/python"
    assert builds.count == 0
    assert (
        "model 'm': the parameter EXECUTION_ENV_PATH names its environment, so "
        f"'{tmp_path}/m/1/requirements.txt' is ignored"
    ) in caplog.text


def test_after_a_failure_the_next_load_tries_again(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "numpy\n")
    builds.fail = "ERROR: no space"
    with pytest.raises(InternalError, match="ERROR: no space"):
        prepare(environments, source, cache)
    assert built(cache) == []
    builds.fail = ""
    assert prepare(environments, source, cache).python.exists()


@pytest.mark.parametrize(("spec", "without"), [(object(), True), (None, False)])
def test_pip_comes_with_the_server_or_is_put_into_the_environment(
    environments: Environments,
    builds: Builds,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    spec: object,
    without: bool,
) -> None:
    monkeypatch.setattr(virtual_environments, "find_spec", lambda name: spec)
    prepare(environments, requiring(tmp_path, "numpy\n"), cache)
    (command,) = (run for run in builds.runs if "venv" in run)
    assert ("--without-pip" in command) == without


def test_installing_can_be_forbidden(
    environments: Environments, builds: Builds, tmp_path: Path, cache: Path
) -> None:
    source = requiring(tmp_path, "numpy\n")
    with pytest.raises(InternalError) as caught:
        prepare(environments, source, cache, install_requirements="false")
    assert str(caught.value) == (
        f"model 'm': what '{tmp_path}/m/1/requirements.txt' asks for is not installed, and "
        "--backend-config=python,install-requirements=false forbids to install it; allow it, or name an "
        "environment that has it with the parameter EXECUTION_ENV_PATH"
    )
    assert builds.runs == []
    # what is there already need not be installed
    prepare(environments, source, cache)
    prepare(environments, source, cache, install_requirements="false")
    assert builds.count == 1


def test_a_server_waits_for_what_another_installs(
    environments: Environments,
    builds: Builds,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = requiring(tmp_path, "numpy\n")
    begun, go_on = threading.Event(), threading.Event()
    run = builds.run

    def run_slowly(arguments: list[str | Path], *_: object, **__: object) -> None:
        begun.set()
        assert go_on.wait(60)
        run(arguments)

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting until" in record.getMessage():
                go_on.set()

    monkeypatch.setattr(builds, "run", run_slowly)
    logger, handler = logging.getLogger("halimede"), Waits()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "halimede"), ThreadPoolExecutor(2) as threads:
            first = threads.submit(prepare, environments, source, cache)
            assert begun.wait(60)
            second = threads.submit(prepare, Environments(), source, cache)
            assert first.result(60).python == second.result(60).python
    finally:
        logger.removeHandler(handler)
    assert builds.count == 1


# Where it is built


def test_environments_lie_in_the_users_cache_directory(
    environments: Environments, builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = requiring(tmp_path, "numpy\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    environment = environments.prepare(source, BackendOptions())
    assert environment is not None
    assert environment.python.is_relative_to(tmp_path / "xdg/halimede/venvs")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    environment = environments.prepare(source, BackendOptions())
    assert environment is not None
    assert environment.python.is_relative_to(tmp_path / "home/.cache/halimede/venvs")


def test_a_user_without_a_home_is_told_what_to_do(
    environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(InternalError, match="--backend-config=python,environment-cache-directory=DIRECTORY"):
        environments.prepare(requiring(tmp_path, "numpy\n"), BackendOptions())


# Programs


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"cannot run '.*/none': No such file or directory"):
        Programs().run([tmp_path / "none"])


def test_a_program_that_is_killed_is_told() -> None:
    with pytest.raises(ProgramError, match="was killed by SIGKILL"):
        Programs().run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
