"""Response senders: what may be sent when, by whom, and who hears if nothing is."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede_worker import senders
from halimede_worker.errors import TritonError, TritonModelException
from halimede_worker.requests import InferenceRequest
from halimede_worker.responses import InferenceResponse
from halimede_worker.senders import FINAL, InferenceResponseSender, State
from halimede_worker.tensors.tensors import Tensor
from halimede_worker.window import RESPONSES, Window

UNSUPPORTED = "Unable to send response. Unsupported flag provided."
NO_RESPONSE = "Inference Response object must be provided when the response flags is set to zero."
DETACHED = "Unable to send response. Response sender has no reference to the decoupled state of the model."
SECOND = "Unable to send response. Non-decoupled model cannot send more than one response."
PREMATURE = (
    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
)
CLOSED = "Unable to send response. Response sender has been closed."


class Line:
    """Takes what senders send. `broken` is raised by the next send."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, InferenceResponse | None, bool]] = []
        self.abandoned: list[int] = []
        self.broken: Exception | None = None

    def transmit(
        self, number: int, response: InferenceResponse | None, final: bool, dropped: Sequence[str] = ()
    ) -> None:
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.sent.append((number, response, final))

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def transmit_abandoned(self, number: int) -> None:
        self.abandoned.append(number)


def a_sender(
    line: Line, decoupled: bool = False, wanted: tuple[str, ...] = ("OUT",)
) -> InferenceResponseSender:
    return InferenceResponseSender(7, wanted, decoupled, line)


def a_response(*names: str) -> InferenceResponse:
    return InferenceResponse([Tensor(name, np.zeros(1, np.float32)) for name in names])


def refused(sender: InferenceResponseSender, *arguments: Any, **keywords: Any) -> str:
    with pytest.raises(TritonModelException) as caught:
        sender.send(*arguments, **keywords)
    return str(caught.value)


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs it, and keeps what it returns or raises."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


# What may be sent when


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("flags", [2, 3, 4, (1 << 32) - 1])
def test_unsupported_flag_is_refused(decoupled: bool, flags: int) -> None:
    sender = a_sender(Line(), decoupled)
    assert refused(sender, a_response(), flags) == UNSUPPORTED
    assert refused(sender, flags=flags) == UNSUPPORTED  # before the missing response
    sender.close()
    assert refused(sender, a_response(), flags) == UNSUPPORTED  # before the state


@pytest.mark.parametrize("decoupled", [False, True])
def test_nothing_without_the_final_flag_is_refused(decoupled: bool) -> None:
    sender = a_sender(Line(), decoupled)
    assert refused(sender) == NO_RESPONSE
    assert refused(sender, None, 0) == NO_RESPONSE
    sender.close()
    assert refused(sender) == NO_RESPONSE  # before the state


@pytest.mark.parametrize("flags", [-1, 1 << 32, 1.0, "1", None])
def test_flags_of_another_type_are_refused(flags: object) -> None:
    sender = a_sender(Line())
    with pytest.raises(TypeError, match=r"^send\(\): incompatible function arguments\."):
        sender.send(a_response(), flags)  # type: ignore[arg-type]
    sender.close()


@pytest.mark.parametrize("response", [5, "text", TritonError("x"), ValueError("x"), [a_response]])
def test_response_of_another_type_is_refused(response: object) -> None:
    sender = a_sender(Line())
    with pytest.raises(TypeError, match=r"^send\(\): incompatible function arguments\."):
        sender.send(response)  # type: ignore[arg-type]
    sender.close()


def test_sender_of_a_request_that_the_model_made_refuses_all() -> None:
    request = InferenceRequest(model_name="m", inputs=[], requested_output_names=[])
    sender = request.get_response_sender()
    assert request.get_response_sender() is sender
    assert refused(sender, a_response()) == DETACHED
    assert refused(sender, a_response(), FINAL) == DETACHED
    assert refused(sender, flags=FINAL) == DETACHED
    assert refused(sender) == NO_RESPONSE
    assert refused(sender, flags=2) == UNSUPPORTED
    assert sender.is_cancelled() is False
    sender.close()
    assert refused(sender, a_response()) == DETACHED


def test_default_model_sends_one_response_and_the_final_flag_with_it() -> None:
    line, response = Line(), a_response("OUT")
    sender = a_sender(line)
    sender.send(response, FINAL)
    assert line.sent == [(7, response, True)]
    assert refused(sender, a_response()) == SECOND
    assert refused(sender, a_response(), FINAL) == SECOND
    assert refused(sender, flags=FINAL) == CLOSED


def test_default_model_sends_one_response_and_the_final_flag_after_it() -> None:
    line, response = Line(), a_response("OUT")
    sender = a_sender(line)
    sender.send(response)
    assert refused(sender, a_response()) == SECOND
    assert refused(sender, a_response(), FINAL) == SECOND
    sender.send(flags=FINAL)
    assert line.sent == [(7, response, False), (7, None, True)]
    assert refused(sender, flags=FINAL) == CLOSED


def test_default_model_cannot_end_before_it_answers() -> None:
    line = Line()
    sender = a_sender(line)
    assert refused(sender, flags=FINAL) == PREMATURE
    assert line.sent == []
    sender.send(a_response(), FINAL)  # it may still answer
    assert len(line.sent) == 1


def test_default_model_whose_batch_failed_is_refused() -> None:
    line = Line()
    sender = a_sender(line)
    sender.close()
    assert refused(sender, a_response()) == CLOSED
    assert refused(sender, a_response(), FINAL) == CLOSED
    assert refused(sender, flags=FINAL) == PREMATURE
    assert line.sent == []


def test_default_model_whose_batch_failed_after_its_response_is_refused() -> None:
    sender = a_sender(Line())
    sender.send(a_response())
    sender.close()
    assert refused(sender, a_response()) == SECOND
    assert refused(sender, flags=FINAL) == CLOSED


def test_decoupled_model_sends_any_number_of_responses() -> None:
    line, responses = Line(), [a_response("OUT") for _ in range(3)]
    sender = a_sender(line, decoupled=True)
    for response in responses:
        sender.send(response)
    sender.send(flags=FINAL)
    assert line.sent == [(7, response, False) for response in responses] + [(7, None, True)]
    assert refused(sender, a_response()) == CLOSED
    assert refused(sender, a_response(), FINAL) == CLOSED
    assert refused(sender, flags=FINAL) == CLOSED


def test_decoupled_model_may_send_nothing_at_all() -> None:
    line = Line()
    a_sender(line, decoupled=True).send(flags=FINAL)
    assert line.sent == [(7, None, True)]


def test_decoupled_model_may_end_with_a_response() -> None:
    line, response = Line(), a_response("OUT")
    sender = a_sender(line, decoupled=True)
    sender.send(response=response, flags=FINAL)
    assert line.sent == [(7, response, True)]
    assert refused(sender, flags=FINAL) == CLOSED


@pytest.mark.parametrize("answered", [False, True])
def test_decoupled_model_whose_batch_failed_is_refused(answered: bool) -> None:
    sender = a_sender(Line(), decoupled=True)
    if answered:
        sender.send(a_response())
    sender.close()
    for arguments in ((a_response(),), (a_response(), FINAL), (None, FINAL)):
        assert refused(sender, *arguments) == CLOSED


def test_error_response_does_not_end_a_decoupled_request() -> None:
    line = Line()
    sender = a_sender(line, decoupled=True)
    sender.send(InferenceResponse(error=TritonError("once")))
    sender.send(a_response("OUT"), FINAL)
    assert len(line.sent) == 2


def test_outputs_that_were_not_requested_leave_the_response_itself() -> None:
    response = a_response("OTHER", "OUT", "THIRD")
    sender = a_sender(Line(), wanted=("OUT",))
    sender.send(response, FINAL)
    assert [output.name() for output in response.output_tensors()] == ["OUT"]


def test_one_response_may_be_sent_twice() -> None:
    line, response = Line(), a_response("OUT")
    sender = a_sender(line, decoupled=True)
    sender.send(response)
    sender.send(response, FINAL)
    assert [sent[1] for sent in line.sent] == [response, response]


@pytest.mark.parametrize("decoupled", [False, True])
def test_response_that_could_not_be_sent_may_be_tried_again(decoupled: bool) -> None:
    line = Line()
    line.broken = MemoryError("no shared memory")
    sender = a_sender(line, decoupled)
    with pytest.raises(MemoryError):
        sender.send(a_response(), FINAL)
    sender.send(a_response(), FINAL)
    assert len(line.sent) == 1


def test_sender_is_only_made_by_a_request() -> None:
    with pytest.raises(TypeError):
        InferenceResponseSender()  # type: ignore[call-arg]


# Threads


def test_of_many_threads_one_sends_the_response_of_a_default_model() -> None:
    line = Line()
    sender = a_sender(line)
    start = threading.Barrier(8)

    def send() -> str:
        start.wait()
        try:
            sender.send(a_response(), FINAL)
        except TritonModelException as error:
            return str(error)
        return "sent"

    runs = [in_thread(send) for _ in range(8)]
    for thread, _ in runs:
        thread.join()
    assert sorted(str(outcome[0]) for _, outcome in runs) == sorted(["sent"] + [SECOND] * 7)
    assert len(line.sent) == 1


def test_nothing_comes_after_the_final_flag_whatever_threads_do() -> None:
    line = Line()
    sender = a_sender(line, decoupled=True)
    entered, go_on = threading.Event(), threading.Event()
    transmit = line.transmit

    def slowly(
        number: int, response: InferenceResponse | None, final: bool, dropped: Sequence[str] = ()
    ) -> None:
        if not final:
            entered.set()
            go_on.wait()
        transmit(number, response, final)

    line.transmit = slowly  # type: ignore[method-assign]
    first, _ = in_thread(lambda: sender.send(a_response()))
    entered.wait()
    last, _ = in_thread(lambda: sender.send(flags=FINAL))
    go_on.set()
    first.join()
    last.join()
    assert [final for _, _, final in line.sent] == [False, True]


# Cancellation


@pytest.mark.parametrize("decoupled", [False, True])
def test_cancellation_is_seen_and_sending_goes_on(decoupled: bool) -> None:
    line = Line()
    sender = a_sender(line, decoupled)
    assert sender.is_cancelled() is False
    sender._cancel()  # noqa: SLF001 - what the server's message does
    assert sender.is_cancelled() is True
    sender.send(a_response(), FINAL)
    assert len(line.sent) == 1


# A client that reads slowly


def stuck(line: Line) -> tuple[InferenceResponseSender, threading.Thread, list[object]]:
    """A sender, and a thread that waits to send one response more than the server takes."""
    sender = a_sender(line, decoupled=True)
    for _ in range(RESPONSES):
        sender.send(a_response())
    assert sender._window is not None  # noqa: SLF001 - how it waits
    changed = sender._window._changed  # noqa: SLF001 - how it waits
    wait, waits = changed.wait, threading.Event()

    def waiting(timeout: float | None = None) -> bool:
        waits.set()  # nobody changes the window before it is waited for: its lock is held
        return wait(timeout)

    changed.wait = waiting  # type: ignore[method-assign]
    thread, outcome = in_thread(lambda: sender.send(a_response()))
    waits.wait()
    assert len(line.sent) == RESPONSES
    return sender, thread, outcome


def test_send_waits_while_the_client_is_too_many_responses_behind() -> None:
    line = Line()
    sender, thread, outcome = stuck(line)
    sender.credit(1)
    thread.join()
    assert outcome == [None]
    assert len(line.sent) == RESPONSES + 1
    sender.credit(2)
    sender.send(a_response())
    sender.send(a_response())
    sender.close()


def test_cancellation_lets_a_waiting_model_go_on() -> None:
    line = Line()
    sender, thread, outcome = stuck(line)
    sender._cancel()  # noqa: SLF001 - what the server's message does
    thread.join()
    assert outcome == [None]
    for _ in range(RESPONSES):
        sender.send(a_response())
    sender.close()


def test_closing_lets_a_waiting_model_fail() -> None:
    line = Line()
    sender, thread, outcome = stuck(line)
    sender.close()
    thread.join()
    assert [str(error) for error in outcome] == [CLOSED]
    assert isinstance(outcome[0], TritonModelException)
    assert len(line.sent) == RESPONSES


def test_the_end_alone_needs_no_room() -> None:
    line = Line()
    sender = a_sender(line, decoupled=True)
    for _ in range(RESPONSES):
        sender.send(a_response())
    sender.send(flags=FINAL)
    assert line.sent[-1] == (7, None, True)


def test_response_that_could_not_be_sent_leaves_its_room() -> None:
    line = Line()
    sender = a_sender(line, decoupled=True)
    for _ in range(RESPONSES + 1):
        line.broken = MemoryError("no shared memory")
        with pytest.raises(MemoryError):
            sender.send(a_response())
    sender.send(a_response(), FINAL)
    assert len(line.sent) == 1


def test_response_of_a_default_model_needs_no_credit() -> None:
    sender = a_sender(Line())
    sender.credit(1)
    sender.send(a_response(), FINAL)
    assert sender.state is State.CLOSED


def test_window_has_room_for_as_many_as_it_says() -> None:
    window = Window(2)
    assert window.take()
    assert window.take()
    thread, outcome = in_thread(window.take)
    window.credit(1)
    thread.join()
    assert outcome == [True]
    window.close()
    assert not window.take()


# Lost senders


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_server_hears_once_of_a_sender_that_is_lost(decoupled: bool, answered: bool) -> None:
    line = Line()
    sender = a_sender(line, decoupled)
    if answered:
        sender.send(a_response())
    assert line.abandoned == []
    del sender
    assert line.abandoned == [7]


@pytest.mark.parametrize("decoupled", [False, True])
def test_sender_that_is_done_may_be_lost(decoupled: bool) -> None:
    line = Line()
    a_sender(line, decoupled).send(a_response(), FINAL)
    a_sender(line, decoupled).close()
    assert line.abandoned == []


def test_sender_lost_in_a_cycle_is_heard_of() -> None:
    line = Line()
    cycle: list[object] = [a_sender(line)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert line.abandoned == [7]


def test_loss_when_the_server_is_gone_is_nobodys_error(recwarn: pytest.WarningsRecorder) -> None:
    class Gone(Line):
        def transmit_abandoned(self, number: int) -> None:
            super().transmit_abandoned(number)
            raise OSError("gone")

    line = Gone()
    sender = a_sender(line)
    del sender
    assert line.abandoned == [7]


def test_sender_that_is_open_when_python_exits_is_nobodys_error() -> None:
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from halimede_worker.senders import InferenceResponseSender

class Line:
    def transmit_abandoned(self, number):
        raise OSError("gone")

import builtins
builtins.kept = [InferenceResponseSender(7, (), True, Line())]
builtins.kept.append(builtins.kept)
kept_too = InferenceResponseSender(8, (), False, Line())
"""
    site = str(Path(str(senders.__file__)).parent.parent)
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, site], capture_output=True, text=True, check=True
    )
    assert result.stderr == ""


def test_sender_can_be_referred_to_weakly() -> None:
    sender = a_sender(Line())
    assert weakref.ref(sender)() is sender
    sender.close()


def test_a_sender_is_full_while_a_response_would_wait() -> None:
    sender = a_sender(Line(), decoupled=True)
    full = [sender.full]
    for _ in range(RESPONSES):
        sender.send(a_response("OUT"))
    full.append(sender.full)
    sender.credit(1)
    full.append(sender.full)
    sender.send(a_response("OUT"))
    full.append(sender.full)
    sender._cancel()  # nobody reads any more, so that nothing waits  # noqa: SLF001 - what the server's message does
    full.append(sender.full)
    assert full == [False, True, False, True, False]


def test_a_sender_of_one_response_is_never_full() -> None:
    assert not a_sender(Line()).full
