import socket
from pathlib import Path

import pytest

from halimede.core.ports import free_port


def test_a_port_is_none_that_the_kernel_gives_away() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for _ in range(50):
        assert not first <= free_port() <= last


def test_nobody_listens_there_and_nobody_was_told_it() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        taken = [listener.getsockname()[1]]
        for _ in range(50):
            taken.append(free_port(taken=taken))
    assert len(set(taken)) == 51


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match="assign"):
        free_port("192.0.2.1")
