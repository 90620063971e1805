import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.echo import REQUEST, write_model
from tests.cli.test_request_log import post
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.timeout(120)

TIMING = re.compile(rb"\r\nServer-Timing: ([^\r]+)\r\n")


def stages(response: bytes) -> dict[str, float]:
    """The header's stages in their order, in milliseconds; {} for a response without the header."""
    found = TIMING.findall(response.partition(b"\r\n\r\n")[0] + b"\r\n")
    if not found:
        return {}
    [value] = found
    pairs = (stage.split(b";dur=") for stage in value.split(b", "))
    return {name.decode(): float(duration) for name, duration in pairs}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("repository")
    write_model(repository)
    with start_server(repository, "--http-server-timing=true", "--allow-sagemaker=true") as started:
        yield started


@pytest.mark.front_ends
def test_response_says_how_long_each_stage_took(server: ServerProcess) -> None:
    response = post(server, "/v2/models/echo/infer", REQUEST)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["model_name"] == "echo"
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    times = stages(response)
    assert list(times) == ["queue", "input", "infer", "output", "total"]
    assert sum(times.values()) - times["total"] <= times["total"]


@pytest.mark.front_ends
def test_generate_says_it_too_and_a_stream_does_not(server: ServerProcess) -> None:
    assert "infer" in stages(post(server, "/v2/models/echo/generate", b'{"INPUT0":[1,2]}'))
    streamed = post(server, "/v2/models/echo/generate_stream", b'{"INPUT0":[1,2]}')
    assert streamed.startswith(b"HTTP/1.1 200 ")
    assert not stages(streamed)


@pytest.mark.front_ends
def test_sagemaker_says_it_too(server: ServerProcess) -> None:
    response = post(server, "/invocations", REQUEST, address=server.sagemaker)
    assert response.startswith(b"HTTP/1.1 200 ")
    assert "infer" in stages(response)


@pytest.mark.front_ends
def test_request_that_never_ran_has_only_its_total(server: ServerProcess) -> None:
    body = b'{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}'
    response = post(server, "/v2/models/echo/infer", body)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert list(stages(response)) == ["total"]


@pytest.mark.front_ends
@pytest.mark.parametrize("path", ["/v2/models/nobody/infer", "/v2/repository/index", "/what"])
def test_request_without_a_model_has_no_times(server: ServerProcess, path: str) -> None:
    assert not stages(post(server, path, b"{}"))


@pytest.mark.front_ends
def test_requests_are_logged_as_well(tmp_path: Path) -> None:
    write_model(tmp_path / "repository")
    log = tmp_path / "access.log"
    flags = ("--http-server-timing=true", "--access-log=json", f"--access-log-file={log}")
    with start_server(tmp_path / "repository", *flags) as server:
        times = stages(post(server, "/v2/models/echo/infer", REQUEST))
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    [entry] = [entry for entry in entries if entry["path"] == "/v2/models/echo/infer"]
    assert times["queue"] == entry["queue_ms"]
    assert times["input"] + times["infer"] + times["output"] == pytest.approx(entry["compute_ms"], abs=0.002)
    assert entry["total_ms"] >= times["total"]


def test_nothing_is_said_without_the_flag(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path) as server:
        assert not stages(post(server, "/v2/models/echo/infer", REQUEST))
