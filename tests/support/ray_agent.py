"""Stands in for the agents of a node of Ray's: `python -S ray_agent.py AGENT --node-id=ID --session-dir=DIRECTORY ...`.

A node ends when its agents do, and waits until they have written where they listen. They are for Ray's dashboard, its
metrics, and the packages that programs bring, none of which the host has a use for; and they compute for seconds before
they do nothing. This one listens nowhere.
"""

import os
import select
import socket
import sys
from pathlib import Path

_NOWHERE = -1


def main() -> None:
    """Write the files that the node waits for, and wait until the node has ended."""
    flags = dict(argument[2:].split("=", 1) for argument in sys.argv[2:] if "=" in argument)
    session, node = Path(flags["session-dir"]), flags["node-id"]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # and never listens: who connects is refused
        if "runtime-env-agent-port" in flags:
            ports = {"runtime_env_agent_port": listener.getsockname()[1]}
        else:
            ports = dict.fromkeys(
                ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"), _NOWHERE
            )
        for name, port in ports.items():
            written = session / f"{name}_{node}.new"
            written.write_text(str(port))
            written.rename(session / f"{name}_{node}")
        select.select([os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))], [], [])


if __name__ == "__main__":
    main()
