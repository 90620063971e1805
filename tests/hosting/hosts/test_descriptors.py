"""A host whose clients take its file descriptors says so, and answers pings."""

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.python_models.support import processes
from tests.support.descriptors import limit_descriptors, shortage
from tests.support.host import start_host
from tests.support.waiting import wait_until

INVOCATION = "/endpoints/absent/invocations"


def ask(connection: HTTPConnection, method: str, path: str) -> tuple[int, bytes]:
    connection.request(method, path, b"x" if method == "POST" else None)
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize("routers", [1, 2])
def test_connections_beyond_the_descriptors_are_told_so_and_pings_are_answered(
    tmp_path: Path, routers: int
) -> None:
    with start_host(tmp_path / "host", f"--router-processes={routers}") as host:
        address = urlsplit(host.url).netloc
        pid = host.process.pid
        pids = [each for each in processes(pid) if "router" in command(each)] or [pid]
        assert len(pids) == routers
        texts = {shortage(limit_descriptors(each, free=4)) for each in pids}
        with ExitStack() as held:
            for _ in range(10 * len(pids)):
                connection = held.enter_context(closing(HTTPConnection(address, timeout=60)))
                assert ask(connection, "GET", "/ping")[0] == 200
                last = held.enter_context(closing(HTTPConnection(address, timeout=60)))
                status, body = ask(last, "POST", INVOCATION)
            assert status == 503
            assert json.loads(body)["message"] in texts
            with closing(HTTPConnection(address, timeout=60)) as another:
                assert ask(another, "GET", "/ping")[0] == 200

        def is_served() -> bool:
            with closing(HTTPConnection(address, timeout=60)) as one:
                return ask(one, "POST", INVOCATION)[0] == 400

        wait_until(is_served)


def command(pid: int) -> str:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
