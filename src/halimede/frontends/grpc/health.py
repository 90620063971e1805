"""The gRPC health service: whether the server is ready, asked once or watched."""

from halimede.engine.engine import Engine
from halimede.frontends.grpc.health_pb2 import HealthCheckRequest, HealthCheckResponse
from halimede.frontends.grpc.transport.call import Call

_SERVING = HealthCheckResponse(status=HealthCheckResponse.SERVING).SerializeToString()
_NOT_SERVING = HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING).SerializeToString()


def check(engine: Engine, request: HealthCheckRequest) -> HealthCheckResponse:
    """SERVING while the server is ready, whatever service the client names."""
    return HealthCheckResponse.FromString(_status(engine))


class HealthWatch:
    """The handler of Watch: sends the status now, and again whenever it has changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watchers: dict[Call, bytes] = {}
        engine.lifecycle.on_readiness.append(self._tell)

    def __call__(self, call: Call) -> None:
        """Serve one watcher until it leaves."""

        def start(_request: memoryview) -> None:
            self._watchers.setdefault(call, b"")
            self._tell()

        def leave() -> None:
            self._watchers.pop(call, None)

        call.on_message = start
        call.on_cancel = leave

    def _tell(self) -> None:
        status = _status(self._engine)
        for call, told in list(self._watchers.items()):
            if told != status:
                self._watchers[call] = status
                call.send([status])


def _status(engine: Engine) -> bytes:
    return _SERVING if engine.lifecycle.ready else _NOT_SERVING
