"""Loading, unloading and asking after other models."""

from typing import Any, Dict, Mapping, Optional

from ..arguments import Signature
from ..errors import TritonModelException
from ..messages.wire import LOAD_MODEL, MODEL_READY, UNLOAD_MODEL, Message
from ..runtime import Runtime, Stage, runtime

_LOAD = Signature.function("load_model(model_name: str, config: str = '', files: object = None) -> None")
_UNLOAD = Signature.function("unload_model(model_name: str, unload_dependents: bool = False) -> None")
_READY = Signature.function("is_model_ready(model_name: str, model_version: str = '') -> bool")

_LARGEST_FILE = (1 << 31) - 1
"""Bytes; a longer file fits into no message."""


class ModelControl:
    """The functions with which one instance controls other models."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def load_model(
        self, model_name: str, config: str = "", files: "Optional[Mapping[str, bytes]]" = None
    ) -> None:
        """Load a model, or load it again, and return when that is done. The server must be in explicit mode.

        May be called in `initialize` and `execute`.

        Args:
            model_name: the model.
            config: its configuration as JSON; "" for the one on disk.
            files: `file:<version>/<path>` → content, in place of the model's directory; needs `config`.

        Raises:
            TypeError: an argument is of another type.
            TritonModelException: it cannot be loaded.
        """
        name = _LOAD.text("model_name", model_name)
        request = (LOAD_MODEL, name, _LOAD.text("config", config), _contents(name, files))
        self._call("load_model", request, "Failed to load model: ")

    def unload_model(self, model_name: str, unload_dependents: bool = False) -> None:
        """Let no new request reach a model; it is gone once those in flight are answered. One not loaded is no error.

        May be called in `initialize`, `execute` and `finalize`. The server must be in explicit mode.

        Args:
            model_name: the model.
            unload_dependents: unload the models of an ensemble too.

        Raises:
            TypeError: an argument is of another type.
            TritonModelException: the server is not in explicit mode.
        """
        name = _UNLOAD.text("model_name", model_name)
        dependents = _UNLOAD.truth("unload_dependents", unload_dependents)
        self._call("unload_model", (UNLOAD_MODEL, name, dependents), "Failed to unload model: ")

    def is_model_ready(self, model_name: str, model_version: str = "") -> bool:
        """Whether a model can be used; one that there is not cannot.

        May be called in `initialize`, `execute` and `finalize`.

        Args:
            model_name: the model.
            model_version: its version in decimal; "" for any.

        Raises:
            TypeError: an argument is of another type.
            TritonModelException: the version is no number.
        """
        request = (
            MODEL_READY,
            _READY.text("model_name", model_name),
            _READY.text("model_version", model_version),
        )
        return bool(self._call("is_model_ready", request, "Failed to check model readiness: "))

    def _call(self, function: str, message: Message, what_failed: str) -> Any:
        """Ask the server.

        Raises:
            TritonModelException: it refuses, there is none, or the model is not at a stage to ask.
        """
        runtime = self._runtime
        ends = runtime.stage is Stage.FINALIZING
        if runtime.control is None or not runtime.initializing or (ends and message[0] == LOAD_MODEL):
            stages = (
                "'initialize' and 'execute'"
                if message[0] == LOAD_MODEL
                else "'initialize', 'execute' and 'finalize'"
            )
            raise TritonModelException(f"{what_failed}{function} can only be used in {stages}")
        try:
            return runtime.call(message)
        except TritonModelException as error:
            raise TritonModelException(what_failed + str(error)) from None


def _contents(name: str, files: Any) -> "Optional[Dict[str, bytes]]":
    """The files for the message.

    Raises:
        RuntimeError: a path is no text.
        TypeError: a content is no bytes.
        TritonModelException: they are no dictionary, or one is too large.
    """
    if files is None:
        return None
    if not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{name}', files should be a dictionary of file paths and file contents"
        )
    contents: Dict[str, bytes] = {}
    for path, content in files.items():
        if not isinstance(path, (str, bytes)):
            raise RuntimeError(
                f"Unable to cast Python instance to C++ type: files' paths must be str, got {type(path)}"
            )
        if not isinstance(content, bytes):
            raise TypeError(f"Object of type '{type(content).__name__}' is not an instance of 'bytes'")
        path = _LOAD.text("files' paths", path)
        contents[path] = bytes(content)
        if len(content) > _LARGEST_FILE:
            raise TritonModelException(
                f"failed to load model '{name}', file {path!r} has {len(content)} bytes, more than {_LARGEST_FILE}"
            )
    return contents


_control = ModelControl(runtime)
load_model = _control.load_model
unload_model = _control.unload_model
is_model_ready = _control.is_model_ready
