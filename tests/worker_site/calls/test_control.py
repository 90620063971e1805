"""Loading, unloading and asking after models, as a model calls it."""

import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from halimede_worker.calls import control
from halimede_worker.calls.control import is_model_ready, load_model, unload_model
from halimede_worker.errors import TritonModelException
from halimede_worker.messages.memory import Memory
from halimede_worker.messages.wire import LOAD_MODEL, MODEL_READY, UNLOAD_MODEL, Channel
from halimede_worker.runtime import Stage, runtime

Message = tuple[Any, ...]


class Server:
    """Answers calls with `answer`, or refuses them with `error`, and remembers them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.answer: object = None
        self.error = ""

    def call(self, message: Message) -> object:
        """In the place of `halimede_worker.calls.calls.call`."""
        self.messages.append(message)
        if self.error:
            raise TritonModelException(self.error)
        return self.answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """This process is a worker in which `initialize` has begun."""
    server = Server()
    monkeypatch.setattr(runtime, "call", server.call)
    monkeypatch.setattr(runtime, "control", cast("Channel", object()))
    monkeypatch.setattr(runtime, "initializing", True)
    return server


def refusal(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(TritonModelException) as caught:
        call(*arguments)
    return str(caught.value)


def test_a_model_is_loaded_as_it_is_on_disk(server: Server) -> None:
    load_model("m")
    load_model(model_name=b"m", config="", files=None)  # type: ignore[arg-type]
    assert server.messages == [(LOAD_MODEL, "m", "", None)] * 2


def test_a_model_is_loaded_from_files(server: Server) -> None:
    load_model("m", '{"backend": "python"}', {"file:1/model.py": b"\xff"})
    assert server.messages == [(LOAD_MODEL, "m", '{"backend": "python"}', {"file:1/model.py": b"\xff"})]


def test_a_model_is_unloaded(server: Server) -> None:
    unload_model("m")
    unload_model(model_name="m", unload_dependents=True)
    assert server.messages == [(UNLOAD_MODEL, "m", False), (UNLOAD_MODEL, "m", True)]


def test_readiness_is_the_servers_answer(server: Server) -> None:
    server.answer = True
    assert is_model_ready("m") is True
    server.answer = False
    assert is_model_ready(model_name="m", model_version="3") is False
    assert server.messages == [(MODEL_READY, "m", ""), (MODEL_READY, "m", "3")]


@pytest.mark.parametrize(
    ("call", "what_failed"),
    [
        (load_model, "Failed to load model: "),
        (unload_model, "Failed to unload model: "),
        (is_model_ready, "Failed to check model readiness: "),
    ],
)
def test_a_refusal_says_what_failed(server: Server, call: Callable[..., object], what_failed: str) -> None:
    server.error = "Failed to process the request for model 'm_0', message: no"
    assert refusal(call, "m") == what_failed + server.error


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (load_model, (5,)),
        (load_model, ("m", None)),
        (unload_model, (None,)),
        (unload_model, ("m", "yes")),
        (is_model_ready, (5,)),
        (is_model_ready, ("m", 1)),
    ],
)
def test_wrong_types_are_type_errors(
    server: Server, call: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match=rf"^{call.__name__}\(\): incompatible function arguments"):
        call(*arguments)
    assert server.messages == []


@pytest.mark.parametrize(
    ("files", "error", "text"),
    [
        ({5: b""}, RuntimeError, "Unable to cast Python instance to C++ type"),
        ({"file:1/model.py": "text"}, TypeError, "Object of type 'str' is not an instance of 'bytes'"),
        ({"file:1/model.py": 5}, TypeError, "Object of type 'int' is not an instance of 'bytes'"),
    ],
)
def test_paths_are_text_and_contents_bytes(
    server: Server, files: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        load_model("m", "{}", files)
    assert str(caught.value).startswith(text)
    assert server.messages == []


@pytest.mark.parametrize("files", [[1], "x", b"x", 5])
def test_files_are_a_dictionary(server: Server, files: Any) -> None:
    assert refusal(load_model, "m", "{}", files) == (
        "failed to load model 'm', files should be a dictionary of file paths and file contents"
    )


def test_a_file_that_fits_into_no_message_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_LARGEST_FILE", 3)
    load_model("m", "{}", {"file:1/a": b"123"})
    assert refusal(load_model, "m", "{}", {"file:1/b": b"1234"}) == (
        "failed to load model 'm', file 'file:1/b' has 4 bytes, more than 3"
    )
    assert len(server.messages) == 1


@pytest.mark.parametrize("call", [load_model, unload_model, is_model_ready])
@pytest.mark.parametrize("stage", ["no worker", "auto-complete"])
def test_models_are_not_controlled_before_initialize(
    server: Server, monkeypatch: pytest.MonkeyPatch, call: Callable[..., object], stage: str
) -> None:
    if stage == "no worker":
        monkeypatch.setattr(runtime, "control", None)
    else:
        monkeypatch.setattr(runtime, "initializing", False)
    allowed = "'initialize' and 'execute'" if call is load_model else "'initialize', 'execute' and 'finalize'"
    assert refusal(call, "m").endswith(f"{call.__name__} can only be used in {allowed}")
    assert server.messages == []


def test_in_finalize_models_are_unloaded_and_asked_after_but_not_loaded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "stage", Stage.FINALIZING)
    assert refusal(load_model, "m").endswith("load_model can only be used in 'initialize' and 'execute'")
    unload_model("m")
    is_model_ready("m")
    assert [message[0] for message in server.messages] == [UNLOAD_MODEL, MODEL_READY]


def test_large_files_travel_through_shared_memory(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    content = bytes(range(256)) * 20_000
    received: list[Message] = []
    with ours, theirs:
        reader = threading.Thread(target=lambda: received.append(Channel(theirs, Memory()).receive()))
        reader.start()
        monkeypatch.setattr(runtime, "call", Channel(ours, Memory()).send)
        load_model("m", "{}", {"file:1/model.bin": content})
        reader.join(60)
    assert received == [(LOAD_MODEL, "m", "{}", {"file:1/model.bin": content})]
