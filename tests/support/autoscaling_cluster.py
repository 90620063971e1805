"""A Ray cluster whose autoscaler adds nodes: processes of this machine, by the provider that Ray brings for tests."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from halimede.hosting.substrates.processes import descendants
from tests.support.lines import complete_lines
from tests.support.ray_cluster import RayCluster, light_nodes
from tests.support.waiting import wait_until

_PORT = 6379
"""Nodes of that provider look for the head there and nowhere else."""

_HEAD = "f" * 51 + "00000"
_OBJECT_STORE_BYTES = 80 << 20


class AutoscalingCluster(RayCluster):
    """A cluster of a head without processors, which is all until somebody needs more."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.nodes = {"head": _HEAD}


@contextmanager
def autoscaling_cluster(directory: Path, most: int) -> Iterator[RayCluster]:
    """A cluster that adds nodes of one processor, `most` of them."""
    lists = (
        "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
        "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude",
        "rsync_filter",
    )  # fmt: skip
    worker = {"CPU": 1, "object_store_memory": _OBJECT_STORE_BYTES}
    config = {
        "cluster_name": "simulated",
        "max_workers": most,
        "provider": {"type": "fake_multinode", "head_node_id": _HEAD, "disable_node_updaters": True},
        "available_node_types": {
            "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": most},
        },
        "head_node_type": "head",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "auth": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in lists},
    }
    file, log = directory / "autoscaler.json", directory / "ray-head.log"
    file.write_text(json.dumps(config))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", _PORT))  # fails if another cluster of this machine has the port
    with socket.socket() as listener:
        listener.bind(("", 0))
        client_port = listener.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={_PORT}", "--num-cpus=0",
        f"--autoscaling-config={file}", "--include-dashboard=false", "--disable-usage-stats",
        f"--object-store-memory={_OBJECT_STORE_BYTES}", f"--ray-client-server-port={client_port}",
    ]  # fmt: skip
    environment = {
        **os.environ,
        **light_nodes(),
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD,
        "RAY_worker_niceness": "0",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        yield AutoscalingCluster(f"{_head_address(process, log)}:{_PORT}")
    finally:
        every = descendants(process.pid)
        process.terminate()
        process.wait(60)
        for pid in every:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _head_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    def address() -> str:
        assert process.poll() is None, f"Ray does not start: {log.read_text()}"
        lines = [line for line in complete_lines(log).splitlines() if "Local node IP:" in line]
        return lines[0].rpartition(":")[2].strip() if lines else ""

    return wait_until(address, lambda: f"Ray: {log.read_text()}", 90)
