"""What an actor leaves behind is ended, however it goes."""

import os
import subprocess
from pathlib import Path

from halimede.hosting.substrates.processes import MARK
from halimede.hosting.substrates.ray.keeper import dismiss, start_keeper
from tests.hosting.substrates.ray.keepers import waiting_keepers
from tests.hosting.substrates.ray.serving import until


def test_processes_and_files_of_an_instance_go_with_its_actor(tmp_path: Path) -> None:
    directory = tmp_path / "a 'name'"
    (directory / "models").mkdir(parents=True)
    held = start_keeper(directory)
    process = subprocess.Popen(["sleep", "1000"], env={MARK: str(directory)}, start_new_session=True)
    [keeper] = waiting_keepers(directory)
    status = dict(line.split(":", 1) for line in (keeper / "status").read_text().splitlines())
    assert int(status["PPid"]) != os.getpid()
    assert int(status["VmRSS"].split()[0]) < 4096
    assert process.poll() is None
    assert held.stdin is not None
    held.stdin.close()
    assert process.wait(30) == -9
    until(lambda: not directory.exists())
    until(lambda: not waiting_keepers(directory))


def test_a_keeper_that_is_told_that_there_is_nothing_left_does_nothing(tmp_path: Path) -> None:
    held = start_keeper(tmp_path)
    assert waiting_keepers(tmp_path)
    dismiss(held)
    until(lambda: not waiting_keepers(tmp_path))
    assert tmp_path.is_dir()
