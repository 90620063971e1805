"""The program of an instance of several containers, started as instances are."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.http.ping import ping
from halimede.hosting.substrates import local
from halimede.hosting.substrates.base import ContainerRequest, InstanceRequest, RunningInstance
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.local import LocalSubstrate
from halimede.hosting.substrates.processes import marked
from halimede.http1.upstream import UpstreamPool
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import (
    MACHINE,
    answers,
    lives,
    needs_namespaces,
    request_for,
    substrate_in,
    text_of,
    wait_for,
)
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until_async

PROGRAM = """#!{python} -SE
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(int(os.environ.get("PING", 200)), b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        exec(os.environ.get("INVOKED", ""))
        self.answer(200, body + os.environ.get("ADDS", "").encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

assert sys.argv[1:] == ["serve"], sys.argv
exec(os.environ.get("SCRIPT", ""))
HTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""
"""Runs what the variable SCRIPT holds, and then adds to each body what ADDS says."""

REPORT = """
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
seen = {
    "model": sorted(os.listdir(base + "/model")) if os.path.isdir(base + "/model") else None,
    "environment": dict(os.environ),
    "directory": os.getcwd(),
}
with open(os.environ["REPORT"], "w") as file:
    file.write(json.dumps(seen) + chr(10))
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is killed soon."""
    monkeypatch.setattr(local, "_PATIENCE_S", 0.2)


def write_program(directory: Path) -> Path:
    program = directory / "container-program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return program


def several(
    program: Path | str, environments: Sequence[Mapping[str, str]], models: Sequence[Path | None] = ()
) -> InstanceRequest:
    """A request for an instance of containers ``container-1``, ``container-2``, …, with those variables."""
    containers = tuple(
        ContainerRequest(
            f"container-{number}", str(program), environment, models[number - 1] if models else None
        )
        for number, environment in enumerate(environments, 1)
    )
    return replace(request_for(program), environment={}, containers=containers)


async def ask(running: RunningInstance, body: bytes, *lines: str) -> bytes:
    """What the instance answers to an invocation, head and all; connections are not kept."""
    pool = UpstreamPool(running.host, running.port)
    reader, writer = await asyncio.open_connection(pool.host, pool.port)
    head = ["POST /invocations HTTP/1.1", "Host: h", "Connection: close", f"Content-Length: {len(body)}"]
    writer.write("\r\n".join([*head, *lines, "", ""]).encode() + body)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


def processes_of(substrate: LocalSubstrate, directory: Path) -> dict[str, int]:
    """The container processes that run, by the names of their directories."""
    found = {}
    for pid, mark in marked(directory).items():
        if mark.parent.name == "containers":
            found[mark.name] = pid
    assert substrate.instances()
    return found


@needs_namespaces
@on_loop
async def test_each_container_has_its_own_variables_and_directories(tmp_path: Path) -> None:
    program, models = write_program(tmp_path), [tmp_path / "a", tmp_path / "b"]
    environments = []
    for number, model in enumerate(models, 1):
        model.mkdir()
        (model / f"file-{number}").touch()
        environments.append(
            {"SCRIPT": REPORT, "REPORT": str(tmp_path / f"report-{number}"), "N": f"{number}"}
        )
    environments.append({"SCRIPT": REPORT, "REPORT": str(tmp_path / "report-3")})
    platform = {"AWS_ENDPOINT_URL": "http://host", "AWS_SECRET_ACCESS_KEY": "secret"}
    async with substrate_in(tmp_path / "host") as (substrate, _):
        request = several(program, environments, [*models, None])
        running = await substrate.launch(request, platform)
        await answers(running)
        seen = [json.loads(await text_of(tmp_path / f"report-{number}")) for number in (1, 2, 3)]
        assert [each["model"] for each in seen] == [["file-1"], ["file-2"], None]
        assert [each["environment"].get("N") for each in seen] == ["1", "2", None]
        assert len({each["environment"]["SAGEMAKER_BIND_TO_PORT"] for each in seen}) == 3
        assert len({each["directory"] for each in seen}) == 3
        for each in seen:
            assert each["environment"]["AWS_ENDPOINT_URL"] == "http://host"
            assert each["environment"]["AWS_SECRET_ACCESS_KEY"] == "secret"
        # what is secret is written nowhere
        for file in (tmp_path / "host").rglob("*"):
            assert not file.is_file() or b"secret" not in file.read_bytes()


@on_loop
async def test_containers_answer_in_a_row_and_one_by_one(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, _):
        running = await substrate.launch(several(program, [{"ADDS": "1"}, {"ADDS": "2"}, {"ADDS": "3"}]))
        await answers(running)
        assert (await ask(running, b"x")).endswith(b"\r\n\r\nx123")
        name = "X-Amzn-SageMaker-Target-Container-Hostname: container-2"
        assert (await ask(running, b"x", name)).endswith(b"\r\n\r\nx2")
        pool = UpstreamPool(running.host, running.port, running.unix_socket)
        connection = await pool.connect()
        assert pool.unix_socket == running.unix_socket != ""
        connection.close()


@on_loop
async def test_lines_of_the_log_say_which_container_printed_them(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    scripts = ["print('one', flush=True)", "print('two' + chr(10) + 'lines', flush=True)"]
    async with substrate_in(tmp_path / "host") as (substrate, _):
        request = several(program, [{"SCRIPT": script} for script in scripts])
        await answers(await substrate.launch(request))
        log = substrate.log(request)
        await wait_until_async(lambda: complete_lines(log).count("\n") == 3)
        assert sorted(log.read_text().splitlines()) == [
            "container-1 | one",
            "container-2 | lines",
            "container-2 | two",
        ]


@on_loop
async def test_a_container_that_ends_ends_the_instance_which_says_why(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        await substrate.launch(
            several(program, [{}, {"SCRIPT": "raise RuntimeError('weights are missing')"}])
        )
        assert await exits.of("i-0") == (
            "one of its containers failed: container 'container-2': it ended with status 1: RuntimeError: weights are "
            "missing"
        )


@on_loop
async def test_a_container_that_is_killed_ends_the_instance_and_the_other_containers(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        await answers(await substrate.launch(several(program, [{}, {"SCRIPT": "print('serving')"}])))
        processes = processes_of(substrate, tmp_path / "host")
        os.kill(processes["container-1"], signal.SIGKILL)
        reason = await exits.of("i-0")
        assert reason.startswith(
            "one of its containers failed: container 'container-1': it was killed by signal SIGKILL"
        )
        await wait_until_async(lambda: not any(lives(pid) for pid in processes.values()))


@on_loop
async def test_a_request_at_a_container_that_ends_is_told_which_one_it_was(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        running = await substrate.launch(several(program, [{}, {"INVOKED": "os._exit(3)"}]))
        await answers(running)
        answer = await ask(running, b"x")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"\r\nx-halimede-container: container-2\r\n" in answer
        assert "container 'container-2': it ended with status 3" in await exits.of("i-0")


@on_loop
async def test_a_program_that_cannot_be_started_is_said_with_its_container(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    other = tmp_path / "other"
    other.write_text("#!/no/such/interpreter\n")
    other.chmod(0o755)
    request = several(program, [{}, {}])
    broken = replace(request.containers[1], image=str(other))
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        await substrate.launch(replace(request, containers=(request.containers[0], broken)))
        reason = await exits.of("i-0")
        assert reason.startswith("one of its containers failed: container 'container-2': ")
        assert "cannot start" in reason


@on_loop
async def test_an_image_that_stands_for_nothing_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    request = several(write_program(tmp_path), [{}, {}])
    containers = (request.containers[0], replace(request.containers[1], image="busybox"))
    async with substrate_in(tmp_path / "host") as (substrate, _):
        with pytest.raises(ApiError, match="no rule says what runs for the image 'busybox'"):
            await substrate.launch(replace(request, containers=containers))
        assert not substrate.instances()


@on_loop
async def test_a_ping_is_answered_well_once_all_are_well(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    async with substrate_in(tmp_path / "host") as (substrate, _):
        running = await substrate.launch(several(program, [{}, {"PING": "500"}]))

        async def trouble() -> str:
            return await ping(running.host, running.port, 5)

        async with asyncio.timeout(60):
            while "container-2: it answers" not in await trouble():
                pass  # each ping gives way
        assert await trouble() == (
            "it answers a ping with status 503: container-2: it answers a ping with status 500"
        )


@on_loop
async def test_nothing_is_left_of_containers_that_were_asked_to_end(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    told = (
        f"import signal; signal.signal(15, lambda *_: (open({str(tmp_path / 'told')!r}, 'w'), os._exit(0)))"
    )
    async with substrate_in(tmp_path / "host") as (substrate, _):
        running = await substrate.launch(several(program, [{"SCRIPT": told}, {}]))
        await answers(running)
        processes = processes_of(substrate, tmp_path / "host")
        assert sorted(processes) == ["container-1", "container-2"]
        await substrate.terminate("i-0")
        assert (tmp_path / "told").exists()
        assert not any(lives(pid) for pid in processes.values())
        assert not substrate.instances()


@on_loop
async def test_the_next_process_of_the_host_takes_them_over(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    request = several(program, [{"ADDS": "1"}, {"ADDS": "2"}])
    async with substrate_in(tmp_path / "host", leave=True) as (substrate, _):
        await answers(await substrate.launch(request))
    second = LocalSubstrate(tmp_path / "host", Images(), MACHINE)
    [running] = await second.start(lambda *_: None)
    try:
        assert running.request == request
        assert (await ask(running, b"x")).endswith(b"\r\n\r\nx12")
    finally:
        await second.stop(leave=False)
        wait_for(running.pid)
    assert not marked(tmp_path / "host")
