"""Samples of the metrics of requests and of this process, read when they are scraped."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from halimede.frontends.grpc.transport.responses import status_name
from halimede.frontends.traffic import Traffic

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

Sample = tuple[str, int]
"""Labels without braces, and a value."""


def http_requests(traffic: Iterable[Traffic]) -> Iterator[Sample]:
    """Requests over HTTP, by protocol, route and status."""
    for each in traffic:
        if each.protocol != "grpc":
            for (route, status), count in sorted(each.counts.items()):
                yield f'protocol="{each.protocol}",route="{route or "other"}",status="{status}"', count


def grpc_requests(traffic: Iterable[Traffic]) -> Iterator[Sample]:
    """Calls over gRPC, by method and status."""
    for each in traffic:
        if each.protocol == "grpc":
            for (path, status), count in sorted(each.counts.items()):
                yield f'method="{path.rpartition("/")[2] or "other"}",status="{status_name(status)}"', count


def in_flight(traffic: Iterable[Traffic]) -> Iterator[Sample]:
    """Requests that are not answered yet, by protocol."""
    for each in traffic:
        yield f'protocol="{each.protocol}"', each.in_flight


def open_connections(traffic: Iterable[Traffic]) -> Iterator[Sample]:
    """Open connections, by protocol."""
    for each in traffic:
        yield f'protocol="{each.protocol}"', each.open


def refused_connections(traffic: Iterable[Traffic]) -> Iterator[Sample]:
    """Connections that were one too many, by protocol; nothing where there may be any number."""
    for each in traffic:
        if each.refused is not None:
            yield f'protocol="{each.protocol}"', each.refused


def resident_memory(proc: Path = Path("/proc")) -> Iterator[Sample]:
    """Bytes of this process that are in memory; nothing where the system does not tell."""
    try:
        pages = (proc / "self" / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return
    yield "", int(pages) * _PAGE


def open_files(proc: Path = Path("/proc")) -> Iterator[Sample]:
    """File descriptors that this process has open; nothing where the system does not tell."""
    try:
        yield "", sum(1 for _ in (proc / "self" / "fd").iterdir()) - 1  # but for the one that lists
    except OSError:
        return
