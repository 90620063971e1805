import sys

from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest, InferResponse, Respond
from tests.engine.ensembles.conftest import Start
from tests.engine.ensembles.fakes import Bench, ensemble, model, step, tensor, values


def limited(start: Start, inflight: int = 2) -> Bench:
    config = ensemble(step("many", "IN=X", "OUT=t"), step("each", "IN=t", "OUT=Y"), inflight=inflight)
    return start(config, model("many", decoupled=True), model("each"))


def is_held(request: InferRequest) -> bool:
    """Whether its model should wait before it sends more."""
    return request.congested


def test_a_step_has_no_more_requests_in_flight_than_it_may(start: Start) -> None:
    bench = limited(start)
    bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    for number in range(5):
        many.send(number)
    many.end()
    done = 0
    while each.requests:
        assert len(each.requests) <= 2
        assert len(each.seen) == min(5, done + 2)
        each.send(done)
        done += 1
    assert bench.stream == [[0], [1], [2], [3], [4]]
    assert [values(request.inputs["IN"]) for request in each.seen] == bench.stream
    assert bench.ended


def test_a_producer_is_held_back_until_there_is_room(start: Start) -> None:
    bench = limited(start)
    bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    producer = many.requests[0]
    drained: list[InferRequest] = []
    producer.on_drain = drained.append
    many.send(0)
    many.send(1)
    assert not is_held(producer)
    many.send(2)
    assert is_held(producer)
    assert not drained
    each.send(0)
    assert not is_held(producer)
    assert drained == [producer]


def test_a_producer_that_sends_all_the_same_is_held_until_the_last_waits_no_more(start: Start) -> None:
    bench = limited(start, inflight=1)
    bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    for number in range(3):
        many.send(number)
    each.send(0)
    assert is_held(many.requests[0])
    each.send(1)
    assert not is_held(many.requests[0])


def test_all_requests_to_the_ensemble_share_the_limit_of_a_step(start: Start) -> None:
    config = ensemble(step("fast", "IN=X", "OUT=t"), step("slow", "IN=t", "OUT=Y"), inflight=2)
    bench = start(config, model("fast"), model("slow"))
    fast, slow = bench.fake("fast"), bench.fake("slow")
    answered: list[float] = []
    for number in range(7):
        bench.infer({"X": tensor(number)}, respond=first_value_into(answered))
    most = 0
    while fast.requests or slow.requests:
        assert len(fast.requests) <= 2
        assert len(slow.requests) <= 2
        most = max(most, len(slow.requests))
        pick = fast if fast.requests else slow
        pick.send(*values(pick.requests[0].inputs["IN"]))
    assert most == 2
    assert answered == list(range(7))
    assert bench.ensemble.inflight == 0


def test_requests_with_different_outputs_share_the_limit(start: Start) -> None:
    config = ensemble(step("both", "IN=X", "OUT=Y OTHER=Z"), outputs="Y Z", inflight=1)
    bench = start(config, model("both", outputs="OUT OTHER"))
    for outputs in (("Y",), ("Z",), ()):
        bench.infer(outputs=outputs, respond=lambda response, final: None)
    assert len(bench.fake("both").requests) == 1


def test_a_request_that_is_cancelled_while_it_waits_leaves_the_order_and_takes_no_place(start: Start) -> None:
    bench = start(ensemble(step("one", "IN=X", "OUT=Y"), inflight=1), model("one"))
    one = bench.fake("one")
    answered: list[float] = []
    errors: list[str] = []
    bench.infer({"X": tensor(0)}, respond=first_value_into(answered))
    waiting = bench.infer({"X": tensor(1)}, respond=error_into(errors))
    bench.infer({"X": tensor(2)}, respond=first_value_into(answered))
    waiting.cancel()
    assert errors == ["[request id: <id_unknown>] the request was cancelled"]
    while one.requests:
        one.send(*values(one.requests[0].inputs["IN"]))
    assert answered == [0, 2]
    assert [values(request.inputs["IN"]) for request in one.seen] == [[0], [2]]


def test_a_request_that_fails_frees_its_places_for_others(start: Start) -> None:
    config = ensemble(
        step("left", "IN=X", "OUT=t"),
        step("right", "IN=X", "OUT=u"),
        step("join", "A=t B=u", "OUT=Y"),
        inflight=1,
    )
    bench = start(config, model("left"), model("right"), model("join", inputs="A B"))
    left, right, join = (bench.fake(name) for name in ("left", "right", "join"))
    answered: list[float] = []
    errors: list[str] = []
    bench.infer({"X": tensor(0)}, respond=error_into(errors))
    bench.infer({"X": tensor(1)}, respond=first_value_into(answered))
    left.fail(InternalError("boom"))
    assert len(left.requests) == 1
    right.send(0)
    assert len(errors) == 1
    left.send(1)
    right.send(1)
    join.send(1)
    assert answered == [1]


def test_a_long_queue_of_requests_that_are_answered_at_once_does_not_recurse(start: Start) -> None:
    count = 5 * sys.getrecursionlimit()
    config = ensemble(step("one", "IN=X", "OUT=Y"), inflight=1)
    bench = start(config, model("one"))
    errors: list[str] = []
    for _ in range(count):
        bench.infer(respond=error_into(errors))
    one = bench.fake("one")
    del bench.models["one"]
    one.fail(InternalError("boom"))
    assert len(errors) == count
    assert bench.ensemble.inflight == 0


def first_value_into(answered: list[float]) -> Respond:
    """Collects the first value of output Y."""

    def respond(response: InferResponse | None, final: bool) -> None:
        assert final
        assert response is not None
        assert response.error is None
        answered.append(values(response.outputs["Y"])[0])

    return respond


def error_into(errors: list[str]) -> Respond:
    """Collects the error's message."""

    def respond(response: InferResponse | None, final: bool) -> None:
        assert final
        assert response is not None
        assert response.error is not None
        errors.append(response.error.message)

    return respond


def test_only_what_is_upstream_of_a_full_step_is_held_back(start: Start) -> None:
    config = ensemble(
        step("outer", "IN=X", "OUT=t"),
        step("inner", "IN=t", "OUT=u"),
        step("each", "IN=u", "OUT=Y"),
        inflight=1,
    )
    bench = start(config, model("outer", decoupled=True), model("inner", decoupled=True), model("each"))
    bench.infer()
    outer, inner, each = bench.fake("outer"), bench.fake("inner"), bench.fake("each")
    outer.send(1)
    outer.send(2)
    assert is_held(outer.requests[0])
    assert not is_held(inner.requests[0])
    inner.send(11)
    inner.send(12)
    assert is_held(inner.requests[0])
    each.send(11)
    assert not is_held(inner.requests[0])
    assert is_held(outer.requests[0])
    inner.end()
    assert not is_held(outer.requests[0])
    assert values(inner.requests[0].inputs["IN"]) == [2]
    each.send(12)
    outer.end()
    inner.send(21, final=True)
    each.send(21)
    assert bench.stream == [[11], [12], [21]]
    assert bench.ended


def test_a_slow_reader_of_the_ensemble_holds_the_producer_back(start: Start) -> None:
    bench = limited(start, inflight=0)
    request = bench.infer()
    many = bench.fake("many")
    drained: list[InferRequest] = []
    many.requests[0].on_drain = drained.append
    many.send(1)
    request.congest()
    assert not is_held(many.requests[0])
    many.send(2)
    assert is_held(many.requests[0])
    request.drain()
    assert not is_held(many.requests[0])
    assert drained == many.requests


def test_a_slow_reader_holds_back_a_producer_that_begins_later(start: Start) -> None:
    config = ensemble(step("one", "IN=X", "OUT=t"), step("many", "IN=t", "OUT=Y"))
    bench = start(config, model("one"), model("many", decoupled=True))
    request = bench.infer()
    request.congest()
    bench.fake("one").send(1)
    assert is_held(bench.fake("many").requests[0])
    request.drain()
    assert not is_held(bench.fake("many").requests[0])


def test_a_reader_that_drains_does_not_release_a_producer_whose_step_is_full(start: Start) -> None:
    bench = limited(start, inflight=1)
    request = bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    request.congest()
    many.send(1)
    many.send(2)
    request.drain()
    assert is_held(many.requests[0])
    request.congest()
    each.send(1)
    assert is_held(many.requests[0])
    request.drain()
    assert not is_held(many.requests[0])


def test_a_producer_that_is_held_back_is_let_go_when_the_request_fails(start: Start) -> None:
    bench = limited(start, inflight=1)
    bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    producer = many.requests[0]
    drained: list[InferRequest] = []
    producer.on_drain = drained.append
    many.send(1)
    many.send(2)
    each.fail(InternalError("boom"))
    assert producer.cancelled
    assert drained == [producer]
    many.end()
    assert "boom" in bench.error.message
    assert len(each.seen) == 1


def test_a_producer_that_sends_on_while_it_is_let_go_keeps_the_order(start: Start) -> None:
    bench = limited(start, inflight=1)
    bench.infer()
    many, each = bench.fake("many"), bench.fake("each")
    producer = many.requests[0]
    left = iter(range(2, 6))

    def send_more(request: InferRequest) -> None:
        for number in left:
            many.send(number)
            if request.congested:
                return
        many.end()

    producer.on_drain = send_more
    many.send(0)
    many.send(1)
    while each.requests:
        each.send(*values(each.requests[0].inputs["IN"]))
    assert bench.stream == [[number] for number in range(6)]
    assert bench.ended
