"""In a front end: requests for inference are read here, and their responses written, where that can be done."""

from functools import partial
from typing import Final

from halimede.core.errors import HalimedeError
from halimede.frontends.grpc.infer import ModelInfer
from halimede.frontends.grpc.transport.call import Call, UnaryMethod
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.routes import Call as HttpCall
from halimede.frontends.http.routes import find_route
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.relay.remote_models import NotHereError, RemoteModels

INFER_PATH: Final = "/inference.GRPCInferenceService/ModelInfer"


class HttpReader:
    """What answers exchanges over HTTP."""

    def __init__(self, models: RemoteModels, inference: Inference, relay: Handler, protocol: str) -> None:
        """Exchanges of a protocol; those that are not for inference are left to `relay`."""
        self._models = models
        self._infer = inference.infer
        self._relay = relay
        self._protocol = protocol

    def __call__(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        route = find_route(exchange.path)
        if route is None or route.call is not HttpCall.INFER or exchange.method != "POST":
            self._relay(exchange)
            return
        models = self._models
        models.relay = partial(self._relay, exchange)
        models.protocol = self._protocol
        models.route = exchange.route = HttpCall.INFER.label
        try:
            self._infer(exchange, route.model, route.version)
        except (NotHereError, HalimedeError):  # which the engine's process says in full
            self._relay(exchange)
        else:
            exchange.relayed = True


class GrpcReader:
    """What answers ModelInfer."""

    def __init__(self, models: RemoteModels, infer: ModelInfer, relay: UnaryMethod) -> None:
        """Calls that `infer` reads; others are left to `relay`."""
        self._models = models
        self._infer = infer
        self._relay = relay.handler

    def __call__(self, call: Call, message: memoryview) -> None:
        """Answer, now or later."""
        models = self._models
        models.relay = partial(self._relay, call, message)
        models.protocol = "grpc"
        models.route = call.path
        try:
            self._infer(call, message)
        except NotHereError:
            self._relay(call, message)
        else:
            call.relayed = call.on_cancel is not None
