"""The console's calls over HTTP, as programs and pages of other sites see them."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from halimede.engine.statistics import BATCH_SIZE_BOUNDS, DURATION_BOUNDS_US
from tests.support.server import ServerProcess, start_server

FILES = (
    "",
    "/server/main.js",
    "/console.css",
    "/server/logs.js",
    "/try_it/form.js",
    "/vendor/uplot/uplot.js",
)


@contextmanager
def asked(
    server: ServerProcess, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        yield connection.getresponse()
    finally:
        connection.close()


def snapshot(server: ServerProcess) -> dict[str, Any]:
    status, body = server.get("/v2/console/snapshot")
    assert status == 200
    return dict(json.loads(body))


def next_event(response: http.client.HTTPResponse) -> tuple[str, Any]:
    """The next event that is more than a comment."""
    lines: list[str] = []
    while True:
        line = response.readline().decode().rstrip("\n")
        assert line or lines or response.fp, "the stream has ended"
        if line:
            lines.append(line)
        elif len(lines) > 1:
            return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))
        else:
            lines.clear()


def infer(server: ServerProcess, numbers: list[int]) -> None:
    tensor = {"name": "numbers", "datatype": "INT32", "shape": [1, len(numbers)], "data": numbers}
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("POST", "/v2/models/identity/infer", json.dumps({"inputs": [tensor]}))
    assert connection.getresponse().status == 200
    connection.close()


def model(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in document["models"] if each["name"] == name]
    return dict(found)


def test_a_snapshot_tells_counters_and_states(server: ServerProcess) -> None:
    before = model(snapshot(server), "identity")
    infer(server, [1, 2])
    server.wait_until(
        lambda: (
            model(snapshot(server), "identity")["counters"]["success"] == before["counters"]["success"] + 1
        ),
        "the request to be counted",
    )
    document = snapshot(server)
    after = model(document, "identity")
    assert after["state"] == "READY"
    assert after["scheduler"] == "default"
    assert after["counters"]["inferences"] == before["counters"]["inferences"] + 1
    assert sum(after["request_us"]) == sum(before["request_us"]) + 1
    assert (
        len(after["request_us"]) == len(document["bounds"]["duration_us"]) + 1 == len(DURATION_BOUNDS_US) + 1
    )
    assert len(after["batch_size"]) == len(document["bounds"]["batch_size"]) + 1 == len(BATCH_SIZE_BOUNDS) + 1
    assert after["instances"][0]["state"] == "idle"
    classifier = model(document, "classifier")
    assert classifier["scheduler"] == "dynamic"
    assert classifier["delay_us"] == 2000
    assert len(classifier["instances"]) == 2
    assert model(document, "negative")["instances"][0]["place"].startswith("process ")
    broken = model(document, "broken")
    assert broken["state"] == "UNAVAILABLE"
    assert "Protobuf parsing failed" in broken["reason"]
    assert "counters" not in broken
    assert document["memory"]["budget_bytes"] == 1_000_000_000
    assert document["server"]["control_mode"] == "explicit"
    assert document["server"]["loads_on_request"] is True
    (http_traffic,) = [each for each in document["traffic"] if each["protocol"] == "http"]
    assert http_traffic["statuses"]["200"] > 0


def test_a_snapshot_comes_each_second(server: ServerProcess) -> None:
    with asked(server, "/v2/console/events") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = [next_event(response) for _ in range(3)]
    assert [kind for kind, _ in events] == ["snapshot"] * 3
    times = [document["time"] for _, document in events]
    assert times[2] - times[0] > 1.5


def test_records_of_the_log_come_once(server: ServerProcess) -> None:
    with asked(server, "/v2/console/logs") as response:
        kind, records = next_event(response)
    assert kind == "logs"
    assert [record["number"] for record in records] == list(range(1, len(records) + 1))
    assert any(record["message"].startswith("Started HTTPService") for record in records)
    last = records[-1]["number"]
    with asked(server, f"/v2/console/logs?after={last - 1}") as response:
        _, again = next_event(response)
    assert again[0] == records[-1]
    with asked(server, "/v2/console/logs?after=soon") as response:
        assert response.status == 400
        assert b"'after' must be the number of a record" in response.read()


@pytest.mark.parametrize("file", FILES)
def test_the_page_and_its_files_may_do_little(server: ServerProcess, file: str) -> None:
    with asked(server, f"/console{file}") as response:
        assert response.status == 200
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.read()


@pytest.mark.parametrize(
    "path", ["/console/nothing.js", "/console/index.html", "/console/vendor/uplot/LICENSE"]
)
def test_there_is_no_other_file(server: ServerProcess, path: str) -> None:
    assert server.get(path)[0] == 404


@pytest.mark.parametrize("call", ["snapshot", "events", "logs"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_get_nothing(server: ServerProcess, call: str, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    with asked(server, f"/v2/console/{call}", headers) as response:
        assert response.status == 403
        assert b"not answered for pages of other sites" in response.read()


def test_names_that_are_not_the_machines_own_are_refused(server: ServerProcess) -> None:
    with asked(server, "/v2/console/snapshot", {"Host": "evil.example"}) as response:
        assert response.status == 403


def test_the_console_is_restricted_as_what_it_shows_is(repository: Path) -> None:
    restricted = ("--http-restricted-api=statistics,model-repository:x-key=open",)
    logs = ("--http-restricted-api=logging:x-log=show",)
    with start_server(repository, "--model-control-mode=explicit", *restricted, *logs) as server:
        for call in ("snapshot", "events"):
            assert server.get(f"/v2/console/{call}")[0] == 403
        with asked(server, "/v2/console/snapshot", {"X-Key": "open"}) as response:
            assert response.status == 200
        assert server.get("/v2/console/logs")[0] == 403
        with asked(server, "/v2/console/logs", {"X-Log": "show"}) as response:
            assert next_event(response)[0] == "logs"
        assert server.get("/console")[0] == 200


def test_without_a_console_its_paths_mean_nothing(repository: Path) -> None:
    with start_server(repository, "--model-control-mode=explicit", "--allow-console=false") as server:
        for path in ("/console", "/console/server/main.js", "/v2/console/snapshot", "/v2/console/events"):
            assert server.get(path) == (404, b'{"error":"Not Found"}')


def test_streams_end_when_the_server_stops(repository: Path) -> None:
    for front_ends in ("1", "2"):
        flags = ("--model-control-mode=explicit", f"--front-ends={front_ends}")
        with (
            start_server(repository, *flags) as server,
            asked(server, "/v2/console/events") as events,
            asked(server, "/v2/console/logs") as logs,
        ):
            assert next_event(events)[0] == "snapshot"
            assert next_event(logs)[0] == "logs"
            assert server.stop() == 0
            events.read()  # to its end
            logs.read()
