"""A worker: what a forked process does until the server tells it to end."""

import asyncio  # noqa: F401 - models use it, and the zygote is to have it
import contextlib
import os
import socket
import sys
import threading
import types
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Dict, Optional

import numpy as np

import c_python_backend_utils  # noqa: F401 - so that every worker has it already, and no copy beside a model counts
import triton_python_backend_utils  # noqa: F401

from .calls.logger import install_handler
from .errors import PlainError, TritonError, describe
from .execution import Executions
from .hosted import HostedExecutions, HostedModel, hosted_model
from .life import completed_config, finalize, initialized, prepare
from .messages import wire
from .messages.memory import Memory
from .messages.wire import Channel, ClosedError, Message
from .patience import Patience
from .placement import place
from .probes import Probes
from .runtime import Stage, runtime
from .stacks import python_stack, write_stacks_on_signal

IDLE_SECONDS = 1.0
"""Shared memory that was not needed for so long is given back."""


def run(work: socket.socket, control: socket.socket, settings: Dict[str, Any]) -> None:
    """Serve the two sockets until the server has the model finalize, or is gone.

    Args:
        work: what to run.
        control: what may be said at any time.
        settings: `model_name`, `instance_name`, and the paths `model_directory`, `version_directory` and
            `model_file`, which lies in the version's directory or in that of a backend; or, instead of a file,
            `hosted`: see `halimede_worker.hosted`; `host_policy`: the arguments of `place`, or nothing.
    """
    if settings.get("host_policy"):  # before there are other threads
        place(**settings["host_policy"])
    runtime.memory = Memory()
    runtime.work = Channel(work, runtime.memory)
    runtime.control = Channel(control, runtime.memory)
    runtime.model_name = settings["model_name"]
    runtime.instance_name = settings["instance_name"]
    runtime.model_directory = settings["model_directory"]
    runtime.version_directory = settings["version_directory"]
    install_handler()
    write_stacks_on_signal()
    _run_as_batch()
    _Worker(settings).serve()


def _run_as_batch() -> None:
    """Do not take the processor from whoever wakes this process.

    That is the server, which is about to send the next message, or to go to sleep anyway. Where both share a core,
    running by turns for a message each costs them a good part of their time.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system, or it is not allowed here
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class _Worker:
    """The process, and the model once it is there."""

    def __init__(self, settings: Dict[str, Any]) -> None:
        self._settings = settings
        self._thread = threading.get_ident()
        self._model: Any = None
        self._hosted: Optional[HostedModel] = None
        self._executions: Optional[Executions] = None
        self._probes: Optional[Probes] = None
        self._patience: Optional[Patience] = None

    def serve(self) -> None:
        """Do what the work socket says."""
        work = runtime.work
        assert work is not None
        threading.Thread(target=self._serve_control, name="halimede-control", daemon=True).start()
        idle: Optional[float] = None
        while True:
            patience = self._patience
            try:
                message = (patience is not None and patience.look(work)) or work.receive(idle)
            except socket.timeout:
                assert self._executions is not None, "only executions leave something to tidy"
                idle = IDLE_SECONDS if self._executions.idle() else None
                continue
            except ClosedError:
                return
            kind = message[0]
            if kind == wire.EXECUTE:
                executions = self._executions
                assert executions is not None, "the server sends batches once the model is initialized"
                assert patience is not None, "as above"
                patience.found()
                executions.run(message)
                idle = IDLE_SECONDS if executions.busy else None
            elif kind == wire.SEQUENCES_ENDED:
                assert self._executions is not None, "only what was executed has ended"
                self._executions.end_sequences(message[1])
            elif kind == wire.FORGET:
                runtime.memory.forget(message[1])
            elif kind == wire.FINALIZE:
                self._answer(self._finalize)
                return
            elif kind == wire.INITIALIZE:
                self._answer(self._initialize, message)
            elif kind == wire.COMPLETE_CONFIG:
                self._answer(self._complete_config, message)

    def _answer(self, step: Any, *arguments: Any) -> None:
        """Answer with what the step returns, or with what is wrong."""
        assert runtime.work is not None
        try:
            answer: Message = (wire.DONE, step(*arguments))
        except BaseException as error:
            told = isinstance(error, PlainError)
            number = error.number if isinstance(error, PlainError) else TritonError.INTERNAL
            answer = (wire.FAILED, str(error) if told else describe(error), int(number))
        runtime.work.send(answer)

    def _serve_control(self) -> None:
        """Do what the control socket says. When the server is gone, this ends the process, whatever else it does."""
        control = runtime.control
        assert control is not None
        while True:
            try:
                message = control.receive()
            except ClosedError:
                os._exit(1)
            kind = message[0]
            if kind == wire.GIVE_BACK:
                runtime.memory.give_back(message[1])
            elif kind == wire.READY and self._probes is not None:
                self._probes.start(message[1])
            elif kind == wire.STACK:
                control.send((wire.STACK_IS, python_stack(self._thread, runtime.coroutine_loop)))
            elif self._executions is not None:
                if kind == wire.CANCEL:
                    self._executions.cancel(message[1])
                elif kind == wire.CREDIT:
                    self._executions.credit(message[1], message[2])

    def _model_class(self) -> Any:
        """The class `TritonPythonModel` of the model's file, imported as `<directory>.<file>`, such as `1.model`."""
        path = Path(self._settings["model_file"])
        directory = str(path.parent)
        name = _package_name(path.parent.name)
        paths = [runtime.version_directory, runtime.model_directory]
        sys.path.extend(paths if directory in paths else [*paths, directory])
        # made here, as the working directory may hold a directory of that name too
        package = types.ModuleType(name)
        package.__path__ = [directory]
        sys.modules[package.__name__] = package
        # not `importlib.import_module`, which tracebacks of models that fail here would show
        module = __import__(f"{package.__name__}.{path.stem}", fromlist=["TritonPythonModel"])
        return module.TritonPythonModel

    def _hosted_model(self) -> HostedModel:
        """The model that is no file's. One that has completed its configuration is initialized too."""
        if self._hosted is None:
            self._hosted = hosted_model(self._settings)
        return self._hosted

    def _complete_config(self, message: Message) -> "str | bytes":
        if "hosted" in self._settings:
            return self._hosted_model().complete_config(message[1])
        return completed_config(runtime, self._model_class(), message[1])

    def _initialize(self, message: Message) -> Dict[str, Any]:
        _, arguments, progress, concurrency, states = message
        model: Any = None
        reserved = 0
        if "hosted" in self._settings:
            runtime.args = arguments
            runtime.initializing = True
            model = self._hosted_model()
            model.initialize(arguments)
            runtime.decoupled = model.decoupled
            reserved = model.reserved_bytes
        else:
            prepare(runtime, arguments)
            model = initialized(runtime, self._model_class(), self._settings["model_file"])
        counter = runtime.memory.view(progress).view(np.int64)
        self._model = model
        self._probes = Probes(model, runtime)
        executions = HostedExecutions if "hosted" in self._settings else Executions
        self._patience = Patience(counter.data)
        self._executions = executions(runtime, model, counter, concurrency, states)
        runtime.stage = Stage.READY
        return {
            "is_ready": hasattr(model, "is_ready"),
            "sequences": self._executions.wants_ends,
            "reserved": reserved,
        }

    def _finalize(self) -> None:
        try:
            finalize(runtime, self._model)
        finally:
            _end_children()


def _end_children() -> None:
    """End what the model has started by `multiprocessing` and not ended: Python would wait for it at its exit."""
    module = sys.modules.get("multiprocessing")
    for child in module.active_children() if module is not None else ():
        child.terminate()


def _package_name(directory: str) -> str:
    """What the package of a model's file is called: as its directory, or as that of a backend, such as `vllm_backend`.

    A backend is often called like the package that it uses, which has to remain importable.
    """
    installed = PathFinder.find_spec(directory)
    return directory if installed is None or installed.origin is None else f"{directory}_backend"
