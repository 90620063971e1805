"""The thread of one instance, and the model on it: what takes the place of a worker process."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from queue import SimpleQueue
from time import thread_time_ns
from typing import Any, Final

import numpy as np

from halimede.backends.loop_share import ALONE_COST_NS
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.host_policies import HostPolicy
from halimede.workers.channel import Message
from halimede.workers.error_numbers import ERRORS
from halimede.workers.host import WorkerHost, WorkerName
from halimede.workers.in_server.facade import modules_of
from halimede.workers.in_server.inbox import Inbox
from halimede.workers.in_server.interpreter import WATCH
from halimede.workers.in_server.logs import ModelLogs
from halimede.workers.in_server.mailbox import Mailbox
from halimede.workers.in_server.memory import ServerMemory
from halimede.workers.in_server.modules import ModelModules
from halimede.workers.in_server.runtime import ServerRuntime
from halimede.workers.probes import ReadinessProbe
from halimede_worker.errors import PlainError, describe
from halimede_worker.execution import Executions
from halimede_worker.life import completed_config, finalize, initialized, prepare
from halimede_worker.messages import wire
from halimede_worker.probes import Probes
from halimede_worker.runtime import Stage
from halimede_worker.stacks import python_stack
from halimede_worker.states import EncodedState

logger = logging.getLogger("halimede")

_WAITING_NAMES: Final = frozenset(
    {
        *("load_model", "unload_model"),
        *("get_event_loop", "new_event_loop", "run_until_complete"),
        *("sleep", "socket", "sqlite3", "subprocess"),
    }
)
"""What code may refer to that waits for the server's loop or for others, or is bound to a thread; calls wait, too."""


class ServerWorker:
    """A thread of the server that runs one instance of a Python model: stands for `halimede.workers.worker.Worker`.

    Attributes:
        memory: tensors on their way to and from the model.
        work: takes what is to be run.
        control: takes what may be said at any time.
        exited: why it ended: never.
        probe: asks the model's `is_ready`.
        may_run_here: batches may run on the loop: what the model does there never waits for the loop.
        calls: batches may call other models.
        cpu_ns: processor time of the last execution on the thread, between two calls of other models.
        is_coroutine: the model's `execute` is a coroutine that runs on the loop.
    """

    exited = None
    pid = 0

    def __init__(
        self,
        host: WorkerHost,
        name: WorkerName,
        settings: dict[str, Any],
        on_work: Callable[[Message], None],
        on_call: Callable[[], None],
        policy: HostPolicy | None = None,
    ) -> None:
        """A thread for an instance, on which nothing runs yet."""
        self.memory = ServerMemory()
        self.work = self.control = self
        self.probe = ReadinessProbe(self.send)
        self.may_run_here = self.calls = self.is_coroutine = False
        self.cpu_ns = ALONE_COST_NS
        self._asked = False
        self._host = host
        self._name = name
        self._settings = settings
        self._policy = policy
        self._model: Any = None
        self._executions: Executions | None = None
        self._probes: Probes | None = None
        self._modules: ModelModules | None = None
        self._request_class: Any = None
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._inbox = inbox = Inbox(host.loop)
        self._runtime = runtime = ServerRuntime(host.loop, inbox, host.clock)
        self._control = Mailbox(inbox, self._control_message)
        control: Any = self._control  # it stands for a channel
        self._services = host.attach(name, self.memory, control, on_call)
        runtime.services = self._services
        self._work = runtime.work = Mailbox(inbox, on_work)
        runtime.control = self._control
        runtime.model_name, runtime.instance_name = settings["model_name"], settings["instance_name"]
        runtime.model_directory = settings["model_directory"]
        runtime.version_directory = settings["version_directory"]
        self._logs = ModelLogs(inbox, self._control, self._services.printed)
        self._thread = threading.Thread(target=self._serve, name=name.instance, daemon=True)
        self._thread.start()

    # Coming and going

    async def complete_config(self, config: str) -> str:
        """The configuration, as the model's `auto_complete_config` completes it.

        Raises:
            HalimedeError: the function failed.
        """
        return str(await self._ask(self._complete_config, config))

    async def initialize(
        self, arguments: dict[str, str], progress: Any, concurrency: int, states: Sequence[EncodedState]
    ) -> dict[str, Any]:
        """Let the model initialize: `sequences`, whether it is to be told of their ends.

        Raises:
            HalimedeError: it failed.
        """
        told: dict[str, Any] = await self._ask(self._initialize, arguments, progress, concurrency, states)
        return told

    def serving(self) -> None:
        """The model has been loaded, with its warm-up."""
        self._services.serving()

    async def stop(self, graceful: bool) -> None:
        """End the thread and give everything back.

        Args:
            graceful: let the model `finalize` first, for as long as it may.
        """
        if graceful:
            try:
                async with asyncio.timeout(self._host.finalize_seconds):
                    await self._ask(finalize, self._runtime, self._model)
            except HalimedeError as error:
                logger.error("'%s' failed to finalize: %s", self._name.instance, error)
            except TimeoutError:
                logger.error(
                    "'%s' did not finalize within %g s; its thread is left to itself",
                    self._name.instance,
                    self._host.finalize_seconds,
                )
        self._tasks.put(None)
        self._control.poll()
        self._runtime.close()
        self._work.close()
        self._services.close()
        self._logs.close()
        if self._modules is not None:
            self._modules.close()
        self._model = self._executions = self._probes = self._modules = self._request_class = None
        self.probe.exited(f"Model instance '{self._name.instance}' is gone.")

    async def stack(self) -> str:
        """Where the model's Python code is; "" if its coroutine waits."""
        return python_stack(self._runtime.thread, self._runtime.coroutine_loop)

    def kill(self) -> None:
        """A message could not be used, which is a bug: there is no process to end."""

    def tidy_later(self) -> None:
        """There is no shared memory to return."""

    # What is to be run

    def send(self, message: Message, outgoing: object = None) -> None:
        """Do what a message says: on the thread, or at once what may be said at any time."""
        kind = message[0]
        executions = self._executions
        if executions is None:
            return
        if kind == wire.EXECUTE:
            self._tasks.put(partial(self._run, executions, message))
        elif kind == wire.SEQUENCES_ENDED:
            self._tasks.put(partial(executions.end_sequences, message[1]))
        elif kind == wire.CANCEL:
            executions.cancel(message[1])
        elif kind == wire.CREDIT:
            executions.credit(message[1], message[2])
        elif kind == wire.READY and self._probes is not None:
            self._host.loop.call_soon(self._probes.start, message[1])  # who asks waits by then

    @property
    def runs_here(self) -> bool:
        """Whether a batch that runs on the loop now never waits for it."""
        targets = self._runtime.targets
        if self._runtime.strayed:
            return False
        if not targets:
            return self.may_run_here
        if self._asked or not (self.may_run_here or self.calls):
            return False  # asked from below: models call each other in a circle
        self._asked = True
        try:
            return self._services.answer_here(targets)
        finally:
            self._asked = False

    @property
    def has_called(self) -> bool:
        """Whether the instance has called other models."""
        return bool(self._runtime.targets)

    def stay_on_thread(self) -> None:
        """Run nothing on the loop any more."""
        self._runtime.strayed = True

    def run_here(self, message: Message) -> None:
        """Run a batch on the loop."""
        assert self._executions is not None, "batches come once the model is initialized"
        self._executions.run(message)

    def _run(self, executions: Executions, message: Message) -> None:
        """Run a batch on the thread."""
        execution = WATCH.begin(self._name.model)
        began, made = thread_time_ns(), self._runtime.calls_made
        try:
            executions.run(message)
        finally:
            self.cpu_ns = (thread_time_ns() - began) // (1 + self._runtime.calls_made - made)
            WATCH.end(execution)

    def _control_message(self, message: Message) -> None:
        if message[0] == wire.IS_READY:
            self.probe.answered(*message[1:])
        else:
            self._services.message(message)

    # On the thread

    def _serve(self) -> None:
        self._runtime.thread = threading.get_ident()
        if self._policy is not None:
            try:
                self._policy.place()
            except Exception:  # what is asked of this thread is waited for
                logger.exception("the thread of '%s' runs without its host policy", self._name.instance)
        tasks = self._tasks
        while (task := tasks.get()) is not None:
            try:
                task()
            except wire.ClosedError:
                pass  # the server is gone
            except Exception:
                logger.exception("a bug in running '%s'", self._name.instance)
            task = None  # what it holds is not kept until the next one comes

    async def _ask(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Let a step run on the thread, and wait for what it returns."""
        loop = self._host.loop
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: HalimedeError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        def run() -> None:
            try:
                value = step(*arguments)
            except PlainError as error:
                loop.call_soon_threadsafe(settle, None, ERRORS[error.number](str(error)))
            except BaseException as error:  # of a model, which may even exit
                loop.call_soon_threadsafe(settle, None, InternalError(describe(error)))
                _forget_frames(error)
            else:
                loop.call_soon_threadsafe(settle, value, None)

        self._tasks.put(run)
        return await answer

    def _model_class(self) -> Any:
        path = Path(self._settings["model_file"])
        directories = [path.parent]
        directories += [Path(self._settings[key]) for key in ("version_directory", "model_directory")]
        given = modules_of(self._runtime)
        self._request_class = given["triton_python_backend_utils"].InferenceRequest
        self._modules = modules = ModelModules(self._name.model, directories, given, self._logs.print)
        self._logs.listen(modules.name)
        return modules.load(path).TritonPythonModel

    def _complete_config(self, config: str) -> str:
        return completed_config(self._runtime, self._model_class(), config)

    def _initialize(
        self, arguments: dict[str, str], progress: Any, concurrency: int, states: Sequence[EncodedState]
    ) -> dict[str, Any]:
        runtime = self._runtime
        prepare(runtime, arguments)
        model_class = self._model_class()
        self._model = model = initialized(runtime, model_class, self._settings["model_file"])
        assert self._modules is not None, "the model came out of it"
        names = self._modules.names
        blocks = not _WAITING_NAMES.isdisjoint(names) or {"asyncio", "run"} <= names
        coroutine = iscoroutinefunction(model.execute)
        runtime.waits = not (coroutine and not runtime.decoupled and "exec" not in names)
        self.is_coroutine = not runtime.waits
        self._probes = Probes(model, runtime)
        self._executions = executions = Executions(runtime, model, np.asarray(progress), concurrency, states)
        executions.request_class = self._request_class
        if not (
            coroutine or blocks or runtime.decoupled or self._policy or hasattr(model, "on_sequence_end")
        ):
            self.calls = "exec" in names
            self.may_run_here = not self.calls
        runtime.stage = Stage.READY
        return {"is_ready": hasattr(model, "is_ready"), "sequences": executions.wants_ends}


def _forget_frames(error: BaseException) -> None:
    """Let an error hold nothing of what was under way where it was raised."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
