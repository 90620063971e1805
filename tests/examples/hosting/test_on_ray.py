"""The walk-throughs of SageMaker on a host that starts a Ray cluster of its own, all at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from halimede.hosting.substrates.processes import marked
from tests.support.host import start_host
from tests.support.ray_cluster import light_nodes

NAMES = ("single_model", "multi_model", "ab_test", "autoscaling", "batch_transform", "sessions")

pytestmark = pytest.mark.timeout(1000)


def test_walk_throughs_print_on_a_cluster_what_they_print_on_one_machine(
    tmp_path: Path, hosting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in light_nodes().items():
        monkeypatch.setenv(name, value)
    flags = ("--substrate=ray", f"--node-directory={tmp_path / 'nodes'}", "--metric-period=1")
    with start_host(tmp_path / "host", *flags) as host:
        running = {
            name: subprocess.Popen(
                [sys.executable, "-m", f"examples.hosting.{name}", str(hosting)],
                env=dict(host.environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for name in NAMES
        }  # fmt: skip
        printed = {name: process.communicate(timeout=900)[0] for name, process in running.items()}
        assert {name: process.returncode for name, process in running.items()} == dict.fromkeys(NAMES, 0), (
            printed
        )
    assert printed["single_model"].splitlines()[1:] == ["as JSON: seven", "as bytes: seven", "deleted"]
    assert "ModelCacheHit: 12 of 15\n" in printed["multi_model"]
    assert "weights: current 1, candidate 0\n" in printed["ab_test"]
    assert "Successful: Setting desired instance count to 3. (AlarmHigh)\n" in printed["autoscaling"]
    assert printed["batch_transform"].splitlines()[-1] == "deleted"
    assert printed["sessions"].splitlines()[-1] == "deleted"
    assert marked(tmp_path / "nodes") == {}
