"""Connections to an instance that listens at a Unix socket as well."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import pytest

from halimede.http1.upstream import UpstreamPool
from tests.support.loops import LoopThread

NOBODY = 65_534

SOMEBODY_ELSE = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def name() -> str:
    """A name that no socket has."""
    return f"@halimede-test-{uuid4()}"


@contextmanager
def listening_near(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name[1:])
        listener.listen()
        listener.settimeout(60)
        yield listener


@contextmanager
def connected(name: str, accepted: Callable[[socket.socket], socket.socket]) -> Iterator[UpstreamPool]:
    """A pool that has connected to an instance at a port and at the socket of that name."""
    with LoopThread() as loop, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        pool = UpstreamPool("127.0.0.1", listener.getsockname()[1], name)
        connection = loop.run(pool.connect())
        try:
            accepted(listener).close()
            yield pool
        finally:
            loop.call(connection.close)


def accept(listener: socket.socket) -> socket.socket:
    return listener.accept()[0]


def test_the_unix_socket_is_preferred(name: str) -> None:
    with listening_near(name) as near, connected(name, lambda _: accept(near)) as pool:
        assert pool.unix_socket == name


def test_an_instance_that_does_not_listen_there_is_reached_at_its_port(name: str) -> None:
    with connected(name, accept) as pool:
        assert not pool.unix_socket  # it is not tried again


def test_an_instance_that_does_not_listen_at_all_yet_may_listen_there_later(name: str) -> None:
    with LoopThread() as loop, socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
        reserved.close()
        pool = UpstreamPool("127.0.0.1", port, name)
        with pytest.raises(OSError, match="refused"):
            loop.run(pool.connect())
        with listening_near(name) as near:
            connection = loop.run(pool.connect())
            with closing(accept(near)):
                loop.call(connection.close)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run a process as another user")
def test_a_socket_of_another_user_gets_no_request(name: str) -> None:
    command = [sys.executable, "-c", SOMEBODY_ELSE, name[1:], str(NOBODY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"listening\n"
        with connected(name, accept) as pool:
            assert not pool.unix_socket
