"""Programs that stand for images, and archives of models, for tests of real hosts."""

import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

_BEGINNING = """#!{python} -SE
import json, os, socketserver, sys
from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, b"")

    def do_POST(self):
        self.invoked(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def answer(self, status, body, headers={{}}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
"""

_END = """

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


print("serving", flush=True)
Server(("", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""

_BETWEEN = """
    def invoked(self, body):
        if body == b"exit":
            print("told to exit", flush=True)
            os._exit(3)
        document = json.loads(body)
        [tensor] = document["outputs"]
        if tensor["data"][0] < 0:
            return self.answer(422, b"no negative numbers", {{"Content-Type": "text/plain"}})
        tensor["name"] = "INPUT"
        self.answer(200, json.dumps({{"inputs": [tensor]}}).encode(), {{"Content-Type": "application/json"}})
"""
"""Makes a request of the next model of the response of the one before."""

_STATEFUL = """
    sessions = {{}}

    def invoked(self, body):
        name = self.headers.get("X-Amzn-SageMaker-Session-Id")
        if name == "NEW_SESSION":
            name = "session-%d" % len(self.sessions)
            self.sessions[name] = 0
            end = body.decode() or "2099-01-01T00:00:00Z"
            opened = {{"X-Amzn-SageMaker-New-Session-Id": name + "; Expires=" + end}}
            return self.answer(200, str(os.getpid()).encode(), opened)
        if name not in self.sessions:
            return self.answer(400, b"no such session here")
        if body == b"close":
            del self.sessions[name]
            return self.answer(200, b"", {{"X-Amzn-SageMaker-Closed-Session-Id": name}})
        self.sessions[name] += int(body)
        self.answer(200, json.dumps([os.getpid(), self.sessions[name]]).encode())
"""
"""Adds up what it is asked in each session."""

_MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() {work})]
            )
            for request in requests
        ]
"""

_CONFIG = """backend: "python"
input {{ name: "INPUT" data_type: TYPE_FP32 dims: [-1] }}
output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [-1] }}
"""


def write_between(directory: Path) -> Path:
    """A program that makes what one model answers what another one is asked; told to, it exits."""
    return _write(directory / "between", _BETWEEN)


def write_stateful(directory: Path) -> Path:
    """A program that has sessions, and says its process number."""
    return _write(directory / "stateful", _STATEFUL)


def _write(path: Path, invoked: str) -> Path:
    path.write_text((_BEGINNING + invoked + _END).format(python=sys.executable))
    path.chmod(0o755)
    return path


def model_archive(work: str) -> bytes:
    """An archive of a Python model which does that to its input, such as ``* 2``."""
    return packed({"m/config.pbtxt": _CONFIG.format(), "m/1/model.py": _MODEL.format(work=work)})


def packed(files: Mapping[str, str]) -> bytes:
    """A model.tar.gz of these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()
