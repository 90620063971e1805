"""Processes that have few file descriptors left."""

import resource
from itertools import count, islice
from pathlib import Path


def limit_descriptors(pid: int, free: int) -> int:
    """Leave a process about so many descriptors before its reserve begins: the limit."""
    taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    unused = (number for number in count() if number not in taken)
    limit = -(-4 * next(islice(unused, free, None)) // 3)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def shortage(limit: int) -> str:
    """What clients are told that get a descriptor of the reserve."""
    return f"the server is out of file descriptors, of which this process may have {limit}; try again later"
