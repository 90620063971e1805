#!/usr/bin/env python3
"""A container with state: in each session it knows all numbers that it was told, and answers with their mean.

A request in a session is a number, or ``close``. The standard library is all that it needs.
"""

import os
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LASTS = timedelta(minutes=5)

told: dict[str, list[float]] = {}


class Handler(BaseHTTPRequestHandler):
    """Answers pings and invocations."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for each response

    def do_GET(self) -> None:
        """Answer a ping."""
        self.answer(200, "")

    def do_POST(self) -> None:
        """Answer an invocation."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        session = self.headers.get("X-Amzn-SageMaker-Session-Id", "")
        if session == "NEW_SESSION":
            session = str(uuid.uuid4())
            told[session] = []
            end = datetime.now(UTC) + LASTS
            opened = f"{session}; Expires={end:%Y-%m-%dT%H:%M:%SZ}"
            self.answer(200, "opened", {"X-Amzn-SageMaker-New-Session-Id": opened})
        elif session not in told:
            self.answer(400, "say a session, or NEW_SESSION")
        elif body == "close":
            numbers = told.pop(session)
            closed = {"X-Amzn-SageMaker-Closed-Session-Id": session}
            self.answer(200, f"closed after {len(numbers)} numbers", closed)
        else:
            told[session].append(float(body))
            self.answer(200, f"{sum(told[session]) / len(told[session]):g}")

    def answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        """Send a response."""
        data = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Write no line for each request."""


if __name__ == "__main__":
    address = ("", int(os.environ["SAGEMAKER_BIND_TO_PORT"]))
    ThreadingHTTPServer(address, Handler).serve_forever()
