"""A Ray cluster of several nodes on this machine: `python -m tests.support.ray_cluster`, told by lines what to do.

Ray's own processes are those of a real cluster, but for nodes' agents (see `tests.support.ray_agent`); only the machine
is one.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from halimede.hosting.substrates.processes import descendants
from tests.support import ray_agent
from tests.support.stopping import go_on, stop
from tests.support.waiting import wait_until

_OBJECT_STORE_BYTES = 80 << 20
_QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
    "gcs_rpc_server_reconnect_timeout_s": 5,
}
"""Dead nodes are noticed within two seconds, and not within fifteen; a dead head within five, and not sixty."""


class RayCluster:
    """A cluster in a process of its own.

    Attributes:
        address: its address.
        pid: the process from which all of Ray's come.
        nodes: name → the id of a node that is alive; the head is called ``head``.
    """

    def __init__(self, process: "subprocess.Popen[str]", head: dict[str, Any]) -> None:
        self._process = process
        self.address: str = head["address"]
        self.pid = process.pid
        self.nodes: dict[str, str] = {"head": head["id"]}

    def _tell(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the cluster has ended"
        return json.loads(line)

    def add(self, name: str, **resources: Any) -> str:
        """Add a node: its id."""
        self.nodes[name] = self._tell(do="add", name=name, resources=resources)
        return self.nodes[name]

    def kill(self, name: str) -> None:
        """Kill a node's raylet with SIGKILL, which is what its actors die of too."""
        self._tell(do="kill", name=name)
        del self.nodes[name]

    def remove(self, name: str) -> None:
        """Take a node away as its administrator does."""
        self._tell(do="remove", name=name)
        del self.nodes[name]

    def requested(self) -> list[dict[str, float]]:
        """What Ray's autoscaler has been asked to have room for (`ray.autoscaler.sdk.request_resources`)."""
        found: list[dict[str, float]] = self._tell(do="requested")
        return found

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """A node that stands still, with its instances: nothing there answers, and nothing is closed."""
        self._tell(do="signal", name=name, number=signal.SIGSTOP)
        try:
            yield
        finally:
            self._tell(do="signal", name=name, number=signal.SIGCONT)

    def kill_head(self) -> None:
        """Kill the process that knows of the cluster, with SIGKILL."""
        self._tell(do="kill_head")


@contextmanager
def ray_cluster(head_cpus: int = 0, **environment: str) -> Iterator[RayCluster]:
    """A cluster whose head has so many processors; it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.ray_cluster", str(head_cpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "RAY_worker_niceness": "0", **environment},
    )
    try:
        assert process.stdout is not None
        yield RayCluster(process, json.loads(process.stdout.readline()))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def make_nodes_light() -> None:
    """Have nodes that this process starts do without what the host has no use for, and which costs more than all else.

    `tests.support.ray_agent` runs instead of their agents; and there are no log monitors, no server of the dashboard,
    and no server of Ray's clients. Who starts a node looks for it without the second that Ray has between two looks.
    """
    from ray._private import node, ray_constants

    services: Any = import_module("ray._private.services")
    state: Any = import_module("ray._private.state")
    agents = (ray_constants.PROCESS_TYPE_DASHBOARD_AGENT, ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT)
    name = "_build_python_executable_command_memory_profileable"
    usual = getattr(services, name)

    def command(component: str, *arguments: Any, **further: Any) -> list[str]:
        if component in agents:
            return [sys.executable, "-S", ray_agent.__file__]
        found: list[str] = usual(component, *arguments, **further)
        return found

    usual_get_node = services.get_node

    def get_node(address: str, node_id: str) -> Any:
        known = state.GlobalState()
        known._initialize_global_state(services._get_gcs_client_options(address))  # noqa: SLF001 - as Ray does
        wait_until(lambda: node_id in [each["NodeID"] for each in known.node_table()], "a node")
        return usual_get_node(address, node_id)

    def start_nothing(*_: Any, **__: Any) -> None:
        """Nobody asks it."""

    setattr(services, name, command)
    services.get_node = get_node
    for name in ("start_log_monitor", "start_api_server", "start_ray_client_server"):
        setattr(node.Node, name, start_nothing)


def light_nodes() -> Mapping[str, str]:
    """Variables with which Ray's own programs start such nodes: Python imports `sitecustomize` from its path."""
    here = Path(__file__).parent
    return {"PYTHONPATH": os.pathsep.join(map(str, (here.parent.parent, here / "ray_site")))}


def main() -> None:
    """Do what the lines of the standard input say."""
    from ray._private import ray_constants
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints
    make_nodes_light()
    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": int(sys.argv[1]),
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
            "no_monitor": True,
            "_system_config": _QUICK,
        },
    )
    answers.write(json.dumps({"address": cluster.address, "id": cluster.head_node.node_id}) + "\n")
    nodes: dict[str, Any] = {"head": cluster.head_node}
    stopped: dict[Any, list[int]] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer = None
        match command["do"]:
            case "add":
                node = cluster.add_node(
                    object_store_memory=_OBJECT_STORE_BYTES, **{"num_cpus": 1, **command["resources"]}
                )
                nodes[command["name"]] = node
                answer = node.node_id
            case "kill":
                _kill(nodes.pop(command["name"]), "raylet")
            case "remove":
                cluster.remove_node(nodes.pop(command["name"]))
            case "signal":
                _signal(nodes[command["name"]], command["number"], stopped)
            case "requested":
                key = ray_constants.AUTOSCALER_RESOURCE_REQUEST_CHANNEL
                text = GcsClient(cluster.address).internal_kv_get(key, None)
                answer = json.loads(text) if text else []
            case "kill_head":
                _kill(nodes["head"], "gcs_server")
        answers.write(json.dumps(answer) + "\n")
    cluster.shutdown()


def _signal(node: Any, number: int, stopped: dict[Any, list[int]]) -> None:
    """Send a signal to a node's processes: those that are there when it is stopped."""
    [info] = node.all_processes["raylet"]
    if number == signal.SIGSTOP:
        stopped[node] = descendants(info.process.pid)
    else:  # it finds out that it was given up, and ends; its workers look whether its number is in use
        threading.Thread(target=info.process.wait, daemon=True).start()
    for pid in stopped[node]:
        with suppress(ProcessLookupError):
            (stop if number == signal.SIGSTOP else go_on)(pid)


def _kill(node: Any, kind: str) -> None:
    for info in node.all_processes[kind]:
        with suppress(ProcessLookupError):  # it has found out that it was given up
            os.kill(info.process.pid, signal.SIGKILL)
        info.process.wait()  # its workers look whether its number is in use


if __name__ == "__main__":
    main()
