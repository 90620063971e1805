"""`python -m benchmarks.echo_server RECORDING`: the transports alone, giving each request's tensor back.

Prints its HTTP and gRPC ports as one line of JSON once both accept connections.
"""

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.echo import SERVICE, Recording
from halimede.cli.tuning import keep_freed_memory, tune_garbage_collector
from halimede.core.clock import LoopClock
from halimede.frontends.grpc.kserve_pb2 import ModelStatisticsResponse
from halimede.frontends.grpc.transport.call import Call, UnaryMethod
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.protocol import HttpProtocol

COUNTED = ("success", "queue")  # the statistics that perf_analyzer wants to see grow


class Echo:
    """The handlers of both protocols."""

    def __init__(self, recording: Recording) -> None:
        self.served = 0
        self.tensor_bytes = recording.tensor_bytes
        self.pages = decoded(recording.pages)
        self.http_head = base64.b64decode(recording.http_head)
        self.http_headers = (("Inference-Header-Content-Length", str(len(self.http_head))),)
        self.grpc_head = base64.b64decode(recording.grpc_head)
        self.statistics_path = f"/v2/models/{recording.model}/stats"
        messages = decoded(recording.messages)
        self.statistics_message = ModelStatisticsResponse.FromString(messages[SERVICE + "ModelStatistics"])
        self.methods = {path: UnaryMethod(partial(reply, message)) for path, message in messages.items()}
        self.methods[SERVICE + "ModelStatistics"] = UnaryMethod(self.on_statistics)
        self.methods[SERVICE + "ModelInfer"] = UnaryMethod(self.on_call)

    def on_exchange(self, exchange: Exchange) -> None:
        """Answer one HTTP request."""
        if exchange.method == "POST":
            self.served += 1
            tensor = exchange.body[int(exchange.headers["inference-header-content-length"]) :]
            exchange.respond(200, (self.http_head, tensor), "application/octet-stream", self.http_headers)
        elif exchange.path == self.statistics_path:
            exchange.respond(200, [self.statistics()])
        else:
            page = self.pages.get(exchange.path)
            exchange.respond(404 if page is None else 200, [page or b"{}"])

    def on_call(self, call: Call, message: memoryview) -> None:
        """Answer one inference over gRPC; the tensor's bytes are the last of the message."""
        self.served += 1
        call.reply((self.grpc_head, message[len(message) - self.tensor_bytes :]))

    def statistics(self) -> bytes:
        """The recorded statistics, with the requests that were served here."""
        document = json.loads(self.pages[self.statistics_path])
        [model] = document["model_stats"]
        model["inference_count"] = model["execution_count"] = self.served
        for statistic in COUNTED:
            model["inference_stats"][statistic]["count"] = self.served
        return json.dumps(document).encode()

    def on_statistics(self, call: Call, _request: memoryview) -> None:
        """The same over gRPC."""
        [model] = self.statistics_message.model_stats
        model.inference_count = model.execution_count = self.served
        for statistic in COUNTED:
            getattr(model.inference_stats, statistic).count = self.served
        call.reply((self.statistics_message.SerializeToString(),))


def decoded(texts: dict[str, str]) -> dict[str, bytes]:
    """The values out of their base64."""
    return {key: base64.b64decode(value) for key, value in texts.items()}


def reply(message: bytes, call: Call, _request: memoryview) -> None:
    """Answer a call with a message that is always the same."""
    call.reply((message,))


async def listen(echo: Echo) -> None:
    """Serve both protocols until SIGTERM."""
    loop = asyncio.get_running_loop()
    settings, clock = GrpcSettings(), LoopClock(loop)
    factories: list[Callable[[], asyncio.BaseProtocol]] = [
        lambda: HttpProtocol(echo.on_exchange),
        lambda: GrpcProtocol(echo.methods, settings, clock),
    ]
    servers = [await loop.create_server(factory, "127.0.0.1", 0) for factory in factories]
    sys.stdout.write(json.dumps([server.sockets[0].getsockname()[1] for server in servers]) + "\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    for server in servers:
        server.close()


def main() -> None:
    keep_freed_memory()
    tune_garbage_collector()
    uvloop.run(listen(Echo(Recording(**json.loads(Path(sys.argv[1]).read_text())))))


if __name__ == "__main__":
    main()
