"""This package's server as an instance."""

import asyncio
import json
import socket
from pathlib import Path

from halimede.hosting.substrates.processes import marked
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import answers, request_for, substrate_in
from tests.support.onnx_models import identity, write_model


@on_loop
async def test_this_server_runs_for_a_triton_image(tmp_path: Path) -> None:
    write_model(tmp_path / "model", "echo", identity(dims=(2,), batching=False))
    image = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        request = request_for(
            image, model=tmp_path / "model", environment={"SAGEMAKER_TRITON_LOG_INFO": "true"}
        )
        running = await substrate.launch(request)
        await answers(running)
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}
        body = json.dumps({"inputs": [tensor]}).encode()
        reader, writer = await asyncio.open_connection(running.host, running.port)
        head = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"data":[1.0,2.0]' in answer
        with socket.socket(socket.AF_UNIX) as near:
            near.connect(running.unix_socket.replace("@", "\0"))
            near.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert near.recv(100).startswith(b"HTTP/1.1 200 ")
        assert not exits
        await substrate.terminate("i-0")
        assert not marked(tmp_path)
        assert not exits


@on_loop
async def test_a_server_without_a_model_tells_why_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    async with substrate_in(tmp_path / "host") as (substrate, exits):
        await substrate.launch(request_for("halimede", model=tmp_path / "model"))
        reason = await exits.of("i-0")
        assert reason.startswith(
            "it ended with status 2; its last lines: halimede: No model found in model repository: "
        )
