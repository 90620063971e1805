#!/usr/bin/env python3
"""A container that reads and writes CSV for a model that takes and gives tensors; the standard library is all it needs.

`Environment` says which of the two it does: CONVERTS=to_tensors makes a request of lines of 64 numbers, and
CONVERTS=to_words makes a line with a word of each row of a response.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def to_tensors(body: str) -> tuple[str, str]:
    """A request for the classifier of digits, and its type."""
    rows = [[int(value) for value in line.split(",")] for line in body.split()]
    for number, row in enumerate(rows, 1):
        if len(row) != 64:
            raise ValueError(f"line {number} has {len(row)} numbers, and a picture has 64")
    pixels = [value for row in rows for value in row]
    tensor = {"name": "image", "datatype": "UINT8", "shape": [len(rows), 8, 8], "data": pixels}
    return json.dumps({"inputs": [tensor]}), "application/json"


def to_words(body: str) -> tuple[str, str]:
    """A word for each row of the classifier's response, and its type."""
    [tensor] = [each for each in json.loads(body)["outputs"] if each["name"] == "probabilities"]
    rows, classes = tensor["shape"]
    probabilities = [tensor["data"][row * classes : (row + 1) * classes] for row in range(rows)]
    return "".join(f"{WORDS[row.index(max(row))]}\n" for row in probabilities), "text/csv"


CONVERT = {"to_tensors": to_tensors, "to_words": to_words}[os.environ["CONVERTS"]]


class Handler(BaseHTTPRequestHandler):
    """Answers pings and invocations."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for each response

    def do_GET(self) -> None:
        """Answer a ping."""
        self.answer(200, "", "text/plain")

    def do_POST(self) -> None:
        """Answer an invocation."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            converted, content_type = CONVERT(body)
        except ValueError as error:
            self.answer(400, str(error), "text/plain")
        else:
            self.answer(200, converted, content_type)

    def answer(self, status: int, text: str, content_type: str) -> None:
        """Send a response."""
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Write no line for each request."""


if __name__ == "__main__":
    print(f"converts {os.environ['CONVERTS']}", flush=True)
    address = ("", int(os.environ["SAGEMAKER_BIND_TO_PORT"]))
    ThreadingHTTPServer(address, Handler).serve_forever()
