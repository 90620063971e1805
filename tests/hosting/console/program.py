"""A program that an image stands for: it speaks the contract of containers, with one model or many."""

import sys
from pathlib import Path

_SOURCE = """#!{python}
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, "text/plain", b"")

    do_DELETE = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/models":
            name = self.headers["X-Amzn-SageMaker-Target-Model"]
            self.answer(500 if name.startswith("bad") else 200, "text/plain", b"weights are missing")
            return
        kind = self.headers.get("Content-Type", "")
        document = json.loads(body) if kind == "application/json" and body.startswith(b"{{") else {{}}
        if "numbers" in document:
            numbers = document["numbers"]
            output = {{"name": "same", "datatype": "INT32", "shape": [1, len(numbers)], "data": numbers}}
            self.answer(200, "application/json", json.dumps({{"outputs": [output]}}).encode())
        elif "words" in document:
            self.stream(document["words"])
        elif "fail" in document:
            say("E", document["fail"])
            self.answer(500, "text/plain", document["fail"].encode())
        else:
            say("I", "asked " + body.decode(errors="replace"))
            self.answer(200, "text/plain", body.upper())

    def stream(self, words):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in words:
            piece = word.encode() + b" "
            self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(0.1)
        self.wfile.write(b"0\\r\\n\\r\\n")

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

def say(level, message):
    now = time.strftime("%m%d %H:%M:%S.000000")
    print(level + now, os.getpid(), "program.py:1]", message, flush=True)

assert sys.argv[1:] == ["serve"]
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
say("I", "ready")
server.serve_forever()
"""


def write_program(directory: Path) -> Path:
    """An executable. What it answers depends on the body: tensors of its numbers, its words one by one, an error."""
    program = directory / "program"
    program.write_text(_SOURCE.format(python=sys.executable))
    program.chmod(0o755)
    return program
