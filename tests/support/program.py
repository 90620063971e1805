"""A program that an image stands for: it speaks the contract of containers and starts at once."""

import sys
from pathlib import Path

_SOURCE = """#!{python}
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print("asked:", body.decode(), flush=True)
        self.answer(body.upper())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

assert sys.argv[1:] == ["serve"]
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
print("process", os.getpid(), "is ready", flush=True)
server.serve_forever()
"""


def write_program(directory: Path) -> Path:
    """An executable that answers pings, and invocations with their bodies in capitals; it logs both to say so."""
    program = directory / "program"
    program.write_text(_SOURCE.format(python=sys.executable))
    program.chmod(0o755)
    return program
