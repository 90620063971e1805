"""Tells when Ray says that nodes are dead: `python -m benchmarks.ray_nodes ADDRESS`.

A line `ready` comes first, and one of a node's id and `time.time` for each that is reported from then on.
"""

import logging
import sys
import time

import ray

_LOOK_S = 0.05


def main() -> None:
    """Look until somebody ends this."""
    ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
    told = _dead()
    print("ready", flush=True)
    while True:
        for node in _dead() - told:
            told.add(node)
            print(node, time.time(), flush=True)
        time.sleep(_LOOK_S)


def _dead() -> set[str]:
    return {each["NodeID"] for each in ray.nodes() if not each["Alive"]}


if __name__ == "__main__":
    main()
