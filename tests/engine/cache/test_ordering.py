from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.cache.ordering import ResponseOrder


class Desk:
    """Requests that are under way, and ids of those that have their response, in order."""

    def __init__(self) -> None:
        self.order = ResponseOrder(self._take)
        self.taken: dict[str, InferRequest] = {}
        self.answered: list[str] = []
        self.at_once: set[str] = set()

    def send(self, *ids: str) -> None:
        for identifier in ids:

            def respond(response: InferResponse | None, final: bool, identifier: str = identifier) -> None:
                assert final
                self.answered.append(identifier)

            self.order.enqueue(InferRequest("m", {}, respond, id=identifier))

    def answer(self, *ids: str) -> None:
        for identifier in ids:
            self.taken.pop(identifier).respond(InferResponse(), True)

    def _take(self, request: InferRequest) -> None:
        self.taken[request.id] = request
        if request.id in self.at_once:
            self.answer(request.id)


def test_a_response_waits_for_those_before_it() -> None:
    desk = Desk()
    desk.at_once = {"b", "d"}
    desk.send("a", "b", "c", "d")
    assert desk.answered == []
    desk.answer("c")
    assert desk.answered == []
    desk.answer("a")
    assert desk.answered == ["a", "b", "c", "d"]


def test_without_others_before_it_a_response_is_sent_at_once() -> None:
    desk = Desk()
    desk.at_once = {"a"}
    desk.send("a")
    assert desk.answered == ["a"]
    assert not desk.order._turns  # noqa: SLF001 - what is left is seen only inside


def test_errors_do_not_wait_and_keep_nobody_waiting() -> None:
    desk = Desk()
    desk.send("a", "b", "c")
    desk.taken.pop("b").respond(InferResponse(error=InternalError("no")), True)
    assert desk.answered == ["b"]
    desk.answer("c")
    assert desk.answered == ["b"]
    desk.answer("a")
    assert desk.answered == ["b", "a", "c"]
    assert not desk.order._turns  # noqa: SLF001 - what is left is seen only inside
