"""Profiles of a running server, as clients take them."""

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.frontends.profiling.stages import STAGES
from tests.cli.echo import infer, write_model
from tests.cli.test_limits import ask
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

PATH = "/v2/debug/profile"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    write_model(repository, rest='parameters { key: "isolation" value { string_value: "process" } }')
    with start_server(repository, "--profile=true", "--http-restricted-api=trace:x-key=open") as running:
        yield running


def take(server: ServerProcess, **wanted: object) -> tuple[int, bytes]:
    """Status and body of a profile."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    try:
        connection.request("POST", PATH, json.dumps(wanted), {"x-key": "open"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.front_ends
def test_text_and_flame_graph_of_a_server_under_load(server: ServerProcess) -> None:
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            assert infer(server) == 200

    client = threading.Thread(target=load)
    client.start()
    try:
        status, text = take(server, seconds=1)
        assert status == 200, text
        lines = text.decode().splitlines()
        assert lines[0].startswith("process ")
        assert [line.split()[0] for line in lines[3 : 3 + len(STAGES)]] == list(STAGES)
        assert any(" halimede-echo" in line for line in lines)
        status, body = take(server, seconds=1, format="json")
        assert status == 200, body
        found = json.loads(body)
        assert found["samples"] > 0
        assert sum(found["stages"].values()) == pytest.approx(1)
        status, body = take(server, seconds=1, format="speedscope")
        assert status == 200, body
        graph = json.loads(body)
        assert graph["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        for profile in graph["profiles"]:
            assert {graph["shared"]["frames"][sample[0]]["name"] for sample in profile["samples"]} <= set(
                STAGES
            )
    finally:
        over.set()
        client.join()


@pytest.mark.front_ends
def test_two_profiles_at_once_are_one_too_many(server: ServerProcess) -> None:
    answers: list[tuple[int, bytes]] = []
    first = threading.Thread(target=lambda: answers.append(take(server, seconds=2)))
    first.start()
    while not answers:
        status, body = take(server, seconds=1)
        if status == 503:
            break
    first.join()
    assert sorted([status, answers[0][0]]) == [200, 503], (body, answers)
    assert b"is being taken already" in (body if status == 503 else answers[0][1])


@pytest.mark.front_ends
def test_profile_ends_when_its_client_leaves(server: ServerProcess) -> None:
    def begin() -> http.client.HTTPConnection | None:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        connection.request("POST", PATH, json.dumps({"seconds": 120}), {"x-key": "open"})
        if take(server, seconds=1)[0] == 503:
            return connection
        connection.close()  # the other one came first
        return None

    connection = wait_until(begin, "the profile is being taken")
    assert connection is not None
    connection.close()
    wait_until(lambda: take(server, seconds=1)[0] == 200, "another profile is taken")


@pytest.mark.front_ends
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"seconds": 0}, "seconds is 0; it must be an integer from 1 to 120"),
        ({"rate": 1.5}, "rate is 1.5; it must be an integer from 1 to 1000"),
        ({"format": "svg"}, 'format is "svg"; it must be one of text, json, speedscope'),
        ({"secs": 3}, 'a profile has no member "secs"; there are seconds, rate, format'),
    ],
)
def test_wrong_wishes_are_refused(server: ServerProcess, wanted: dict[str, object], reason: str) -> None:
    status, body = take(server, **wanted)
    assert (status, json.loads(body)) == (400, {"error": reason})


@pytest.mark.front_ends
def test_profiles_are_restricted_with_traces(server: ServerProcess) -> None:
    status, _, _, body = ask(server, "POST", PATH)
    assert status == 403
    assert b"This API is restricted" in body


def test_profiles_are_off_unless_the_flag_says_otherwise(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path) as server:
        status, _, _, body = ask(server, "POST", PATH)
        assert status == 501
        assert json.loads(body) == {"error": "profiling is off: start the server with --profile=true"}


def test_server_that_cannot_take_profiles_says_so_at_start(tmp_path: Path) -> None:
    write_model(tmp_path)
    script = (
        "import sys, halimede.frontends.profiling.sampler as sampler\n"
        "sampler.program = lambda: ''\n"
        "from halimede.cli.main import main\n"
        f"main(['serve', '--model-repository={tmp_path}', '--profile=true', '--http-port=0', '--grpc-port=0', "
        "'--metrics-port=0', '--http-address=127.0.0.1', '--grpc-address=127.0.0.1'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "--profile: profiling needs py-spy" in ended.stdout + ended.stderr
    assert "pip install 'halimede[profile]'" in ended.stdout + ended.stderr
