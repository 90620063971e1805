from halimede.frontends.grpc.health_pb2 import HealthCheckResponse
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import StreamMethod, UnaryMethod
from tests.frontends.grpc.service_fakes import FakeCall, FakeEngine

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def told(call: FakeCall) -> list[HealthCheckResponse.ServingStatus]:
    return [HealthCheckResponse.FromString(message).status for message in call.messages]


def watch(engine: FakeEngine) -> FakeCall:
    call = FakeCall(WATCH)
    method = methods(engine, ServiceSettings())[WATCH]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, StreamMethod)
    method.handler(call)  # type: ignore[arg-type]  # a fake
    call.receive(b"")
    return call


def test_check_tells_whether_the_server_is_ready() -> None:
    engine = FakeEngine()
    method = methods(engine, ServiceSettings())[CHECK]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, UnaryMethod)
    for ready, status in ((True, SERVING), (False, NOT_SERVING)):
        engine.lifecycle.ready = ready
        call = FakeCall(CHECK)
        method.handler(call, memoryview(b"\n\x07service"))  # type: ignore[arg-type]  # a fake

        assert told(call) == [status]
        assert call.status == 0


def test_watch_tells_the_status_and_each_change_once() -> None:
    engine = FakeEngine()
    call = watch(engine)
    assert told(call) == [SERVING]

    for ready in (True, False, False, True):
        engine.lifecycle.ready = ready
        for callback in engine.lifecycle.on_readiness:
            callback()

    assert told(call) == [SERVING, NOT_SERVING, SERVING]


def test_a_watcher_that_left_is_told_nothing() -> None:
    engine = FakeEngine()
    call = watch(engine)
    call.cancel()
    engine.lifecycle.ready = False
    for callback in engine.lifecycle.on_readiness:
        callback()

    assert told(call) == [SERVING]
