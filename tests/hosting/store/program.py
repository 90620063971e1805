"""A host with an object store, in a process of its own: says its port, and runs until it is killed."""

import signal
import sys
from pathlib import Path

from tests.hosting.store.serving import store_host

if __name__ == "__main__":
    with store_host(Path(sys.argv[1])) as host:
        sys.stdout.write(f"{host.port}\n")
        sys.stdout.flush()
        signal.pause()
