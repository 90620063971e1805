"""The process that speaks to Ray: `python -m halimede.hosting.substrates.ray.engine DESCRIPTOR HOST`.

It is Ray's driver, and does what the host asks over a socket. It ends with the socket. Actors are detached: they stay.
"""

import asyncio
import ctypes
import gc
import logging
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from halimede.core import tasks
from halimede.core.memory import trim_memory
from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance, log_of
from halimede.hosting.substrates.ray.actor import InstanceActor
from halimede.hosting.substrates.ray.launch import ActorState, Events, Launch, Progress, Shape
from halimede.hosting.substrates.ray.messages import (
    Answer,
    Call,
    Event,
    LostError,
    UnreachableError,
    UnusableNodeError,
    receive,
    send,
)
from halimede.hosting.substrates.ray.placement import Node, choose_node, shortage
from halimede.hosting.substrates.use import InstanceUse

logger = logging.getLogger("halimede.ray")

_CALLS_AT_A_TIME = 1000
"""Of one actor: they wait most of the time."""

_LOOK_S = 0.25
"""So long what Ray says of its nodes is good for: it hears of what they have given away each 0.1 s itself."""

_ON_PARENTS_DEATH = 1
"""The number of that option of prctl (Linux)."""

_RETRY_S = 1.0
_PLACING_S = 1.0
"""So long an actor may take to be placed before it is told why it is not."""

_SETTLING_S = 30.0
"""So long an actor may take to end, beyond what its instance may."""

_NODE_LOOK_S = 2.0
"""Between two looks at whether the node of an actor that does not answer is there."""

_UNREACHABLE_S = 60.0
"""So long an actor that is being started may be out of reach while its node is there."""

_UNKNOWN_S = 5.0
"""The same for one that was not looked after, and may not have been placed."""

_NO_LOG = 1 << 60
"""A position behind all logs."""

_USAGE_S = 5.0

_IP = re.compile(r"\bip[=:] ?([0-9A-Fa-f.:]*[0-9A-Fa-f])")
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*: ")


@dataclass(slots=True, eq=False)
class _Held:
    """An instance that is looked after.

    Attributes:
        actor: Ray's handle.
        shape: what it asks of its node.
        variant: whose it is.
        log: the file on this machine that its log is written to.
        node: where it is; "" before it was placed.
        position: so much of its log is there.
        progress: what was told last of an archive.
        watch: tells of it.
    """

    actor: Any
    shape: Shape
    variant: str
    log: Path
    node: str = ""
    position: int = 0
    progress: Progress | None = None
    watch: "asyncio.Task[None] | None" = None


class Engine:
    """Does what the host asks. Lives on the event loop; what of Ray blocks runs on other threads."""

    def __init__(self, namespace: str, writer: asyncio.StreamWriter) -> None:
        self._namespace = namespace
        self._writer = writer
        self._held: dict[str, _Held] = {}
        self._placing = asyncio.Lock()
        self._tasks = Tasks()
        self._actor_class = ray.remote(InstanceActor)  # Ray ships it once for all actors
        self._look: asyncio.Task[_Cluster] | None = None
        self._looked = 0.0

    def answer(self, call: Call) -> None:
        """Answer a call when what it asks for is done."""
        self._tasks.start(call.name, self._answer(call))

    async def _answer(self, call: Call) -> None:
        try:
            value = await getattr(self, call.name)(*call.arguments, **call.named)
            answer = Answer(call.number, value)
        except (ApiError, LostError, UnreachableError) as error:
            answer = Answer(call.number, error=error)
        except (Exception, asyncio.CancelledError) as error:
            if tasks.was_asked_to_end():
                raise
            logger.exception("%s failed", call.name)
            answer = _failed(call, error)
        try:
            send(self._writer, answer)
        except Exception as error:  # it cannot be pickled, and the host waits for an answer
            logger.exception("the answer to %s cannot be sent", call.name)
            send(self._writer, _failed(call, error))

    def _tell(self, name: str, *arguments: Any) -> None:
        send(self._writer, Event(name, arguments))

    # the cluster

    async def nodes(self) -> list[Node]:
        """The nodes that are alive, and what nobody has of them."""
        found, reported = await self._cluster()
        nodes = []
        for each in found:
            if each["Alive"]:
                mine = [held for held in self._held.values() if held.node == each["NodeID"]]
                free = _free(each["Resources"], reported.get(each["NodeID"]), [held.shape for held in mine])
                variants = Counter(held.variant for held in mine)
                nodes.append(
                    Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"], free, variants)
                )
        return nodes

    async def _cluster(self) -> "_Cluster":
        """What Ray says of its nodes, which many instances that wait for room ask for together."""
        now = asyncio.get_running_loop().time()
        if self._look is None or (self._look.done() and now - self._looked > _LOOK_S):
            self._look, self._looked = tasks.submit(asyncio.to_thread(_cluster)), now
        return await asyncio.shield(self._look)

    async def request_resources(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Ask Ray's autoscaler for nodes that hold all of these; none takes earlier wishes back."""
        await asyncio.to_thread(_request_resources, bundles)

    async def actors(self) -> list[str]:
        """The names of the host's actors, those that wait for room too."""
        return await asyncio.to_thread(lambda: list(ray.util.list_named_actors()))

    # instances

    async def adopt(self, name: str, logs: Path, timeout_s: float) -> ActorState:
        """What an actor has, that another engine has started; if that runs, it is looked after.

        Args:
            name: the instance's id.
            logs: the directory of all logs.
            timeout_s: how long the actor may take to tell.
        """
        try:
            actor: Any = await asyncio.to_thread(ray.get_actor, name)
            async with asyncio.timeout(timeout_s):
                state: ActorState = await self._reached(None, actor.state.remote)
        except (TimeoutError, ValueError, LostError):  # ValueError: it has gone meanwhile
            return ActorState()
        if state.request is not None and state.shape is not None and state.running is not None:
            held = self._hold(name, actor, state.shape, _variant(state.request), log_of(logs, state.request))
            held.node = state.running.node
        return state

    def _hold(self, name: str, actor: Any, shape: Shape, variant: str, log: Path) -> _Held:
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = _Held(actor, shape, variant, log, position=_size(log))
            held.watch = tasks.start(f"watching instance {name}", self._watch(name, held))
        return held

    async def launch(self, launch: Launch, logs: Path, wait_s: float, *, spread: bool) -> RunningInstance:
        """Have an instance, in an actor that may be there already.

        Raises:
            ApiError: it cannot be started, or there is no room for it for so long.
            LostError: its node has gone meanwhile.
        """
        name = launch.request.id
        async with self._placing:
            actor, node = await self._actor(launch, spread=spread)
            held = self._hold(
                name, actor, launch.shape, _variant(launch.request), log_of(logs, launch.request)
            )
            held.node = node
        try:
            held.node = await self._placed(name, held, wait_s)
            state: ActorState = await self._reached(held, actor.state.remote)
            if state.running is not None:
                return state.running
            running: RunningInstance = await self._reached(held, lambda: actor.start.remote(launch))
            # before it is known to run: nobody waits for more once it serves
            self._tell_progress(name, held, await self._reached(held, actor.progress.remote))
            return running
        except BaseException:
            await self.terminate(name, 0.0)
            raise

    async def _actor(self, launch: Launch, *, spread: bool) -> tuple[Any, str]:
        """The actor of an instance, and where it is about to be."""
        name, shape = launch.request.id, launch.shape
        node = choose_node(await self.nodes(), shape, _variant(launch.request), spread=spread)
        options: dict[str, Any] = {
            "name": name,
            "namespace": self._namespace,
            "lifetime": "detached",
            "max_restarts": 0,
            "max_concurrency": _CALLS_AT_A_TIME,
            "num_cpus": shape.cpus,
            "num_gpus": shape.gpus,
            "resources": dict(shape.custom),
            "scheduling_strategy": "SPREAD" if spread else "DEFAULT",
        }
        if shape.memory_bytes:
            options["memory"] = shape.memory_bytes
        if node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                node.id, soft=True, _spill_on_unavailable=True
            )
        made = self._actor_class.options(**options)
        try:
            actor = await asyncio.to_thread(made.remote, launch.settings)
        except ValueError as error:  # another engine has made it, unless Ray does not like something else
            try:
                return await asyncio.to_thread(ray.get_actor, name), ""
            except ValueError:
                raise error from None
        return actor, "" if node is None else node.id

    async def _placed(self, name: str, held: _Held, wait_s: float) -> str:
        """The node on which an actor is, once it is on one.

        Raises:
            ApiError: there is no room for it for so long.
            LostError: it is gone.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        async with Tasks() as asking:
            where = asking.submit(self._reached(None, held.actor.where.remote))
            while True:
                await asyncio.wait([where], timeout=_PLACING_S)
                if where.done():
                    self._tell("waiting", name, "")
                    node: str = where.result()[0]
                    return node
                held.node = ""
                nodes = await self.nodes()
                if choose_node(nodes, held.shape, held.variant, spread=False) is None:
                    reason = shortage(nodes, held.shape)
                    self._tell("waiting", name, reason)
                    if loop.time() >= end:
                        msg = f"{reason}. Add nodes, delete endpoints, lower instance counts, or use a smaller type"
                        raise ApiError("InsufficientInstanceCapacity", msg, 503)

    async def terminate(self, name: str, grace_s: float) -> None:
        """End an instance and its actor, wherever they are."""
        held = self._held.get(name)
        if held is None:
            await self._terminate_unknown(name, grace_s)
            return
        await tasks.cancel(held.watch)
        try:
            if held.node:
                rest = await self._stopped(held, grace_s)
                await asyncio.to_thread(_append, held.log, rest)
        except (OSError, LostError, UnreachableError, RayError) as error:  # a time that is over is an OSError
            logger.info("instance %s: %s", name, error)
        finally:
            self._held.pop(name, None)
            await self._kill(held.actor)

    async def _stopped(self, held: _Held, grace_s: float) -> bytes:
        """End an instance by its actor: the rest of its log.

        Raises:
            LostError: the actor or its node is gone.
            TimeoutError: it does not end.
        """
        async with asyncio.timeout(grace_s + _SETTLING_S):
            rest: bytes = await self._answered(held, held.actor.stop.remote(grace_s, held.position))
            return rest

    async def _answered(self, held: _Held, answer: Awaitable[Any]) -> Any:
        """What an actor answers.

        Raises:
            ApiError: the method raised it.
            LostError: the actor or its node is gone.
            UnreachableError: it cannot be reached now.
        """
        async with Tasks() as asking:
            answered = asking.submit(_asked(answer))
            while not answered.done():
                await asyncio.wait([answered], timeout=_NODE_LOOK_S)
                # a machine that stands still keeps its connections, and Ray waits for an answer from there
                if not answered.done():
                    await self._check_node(held)
            return answered.result()

    async def _check_node(self, held: _Held) -> None:
        if held.node and held.node not in {node.id for node in await self.nodes()}:
            raise LostError("its node is gone")

    async def _reached(self, held: _Held | None, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What an actor answers, who is asked again if it cannot be reached until it is known to be gone, or is there.

        Args:
            held: it, if its node is known.
            ask: asks it, which may be done several times.

        Raises:
            ApiError: the method raised it.
            LostError: the actor or its node is gone, or was out of reach for too long.
        """
        end = asyncio.get_running_loop().time() + _UNREACHABLE_S
        while True:
            try:
                return await (_asked(ask()) if held is None else self._answered(held, ask()))
            except UnreachableError as error:
                if asyncio.get_running_loop().time() >= end:
                    raise LostError(str(error)) from None
            await asyncio.sleep(_RETRY_S)
            if held is not None:
                await self._check_node(held)

    async def _terminate_unknown(self, name: str, grace_s: float) -> None:
        """End what another engine has started, whose log nobody wants any more."""
        try:
            actor: Any = await asyncio.to_thread(ray.get_actor, name)
        except ValueError:  # there is none
            return
        with suppress(TimeoutError, LostError, UnreachableError, RayError):
            await asyncio.wait_for(_asked(actor.stop.remote(grace_s, _NO_LOG)), grace_s + _UNKNOWN_S)
        await self._kill(actor)

    async def _kill(self, actor: Any) -> None:
        await asyncio.to_thread(lambda: ray.kill(actor, no_restart=True))

    async def _watch(self, name: str, held: _Held) -> None:
        """Tell what becomes of an instance, and take its log, until it has ended."""
        while True:
            try:
                if await self._take_events(name, held):
                    return
            except LostError as error:
                self._held.pop(name, None)
                self._tell("lost", name, str(error))
                return
            except (UnreachableError, RayError, OSError) as error:
                logger.info("instance %s: %s", name, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:  # nobody else would notice its end
                logger.exception("instance %s cannot be watched; it is tried again", name)
                await asyncio.sleep(_RETRY_S)

    async def _take_events(self, name: str, held: _Held) -> bool:
        """Tell what is new of an instance, and take its log: whether it has ended."""
        events: Events = await _asked(held.actor.events.remote(held.position))
        failure: OSError | None = None
        if events.log:
            try:
                await asyncio.to_thread(_append, held.log, events.log)
            except OSError as error:
                failure = error
            else:
                held.position += len(events.log)
        self._tell_progress(name, held, events.progress)
        if events.exit_code is not None:
            self._tell("exited", name, events.exit_code)
            return True
        if failure is not None:  # the same lines are taken again
            raise failure
        return False

    def _tell_progress(self, name: str, held: _Held, progress: Progress | None) -> None:
        if progress is not None and progress != held.progress:
            held.progress = progress
            self._tell("progress", name, *progress)

    async def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """What a method of an instance's actor gives.

        Raises:
            ApiError: what that raises.
            LostError: there is no such actor any more.
            UnreachableError: it cannot be reached now.
        """
        held = self._held.get(name)
        if held is None:
            raise LostError("it is gone")
        return await self._answered(held, getattr(held.actor, method).remote(*arguments))

    async def usage(self) -> dict[str, InstanceUse]:
        """What instances have used since the last call; those that do not tell soon lack."""

        async def of(name: str) -> tuple[str, InstanceUse | None]:
            with suppress(TimeoutError, LostError, UnreachableError, RayError):
                async with asyncio.timeout(_USAGE_S):
                    return name, await self.ask(name, "usage")
            return name, None

        told = await asyncio.gather(*(of(name) for name, held in self._held.items() if held.node))
        return {name: use for name, use in told if use is not None}


def _failed(call: Call, error: BaseException) -> Answer:
    """The answer to a call that failed in a way that nobody foresaw."""
    return Answer(call.number, error=ApiError("InternalFailure", f"Ray: {_told(error)}", 500))


_Cluster = tuple[list[dict[str, Any]], dict[str, dict[str, float]]]


def _cluster() -> _Cluster:
    """What Ray says of its nodes, and what nobody has of them, by their ids."""
    return ray.nodes(), available_resources_per_node()


def _request_resources(bundles: Sequence[Mapping[str, float]]) -> None:
    from ray.autoscaler import sdk  # which takes 4 MB that most hosts never need

    sdk.request_resources(bundles=[dict(each) for each in bundles])


def _variant(request: InstanceRequest) -> str:
    """Whose instances are to be apart."""
    return f"{request.fleet}/{request.variant}"


async def _asked(answer: Awaitable[Any]) -> Any:
    """What an actor answers.

    Raises:
        ApiError: the method raised it.
        UnusableNodeError: the actor could not be made.
        LostError: the actor is gone.
        UnreachableError: it cannot be reached now.
    """
    try:
        return await answer
    except ActorUnavailableError as error:
        raise UnreachableError(_told(error)) from None
    except RayActorError as error:
        if error.actor_init_failed:
            raise UnusableNodeError(_why_not_made(str(error))) from None
        raise LostError(_told(error)) from None
    except RayTaskError as error:
        if isinstance(error.cause, ApiError):
            raise error.cause from None
        raise


def _told(error: BaseException) -> str:
    """Ray's reason, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    about = [line for line in lines if line.startswith("The actor is dead") or "node" in line.lower()]
    return (about or lines or [type(error).__name__])[-1][:400]


def _why_not_made(text: str) -> str:
    """Why an actor could not be made, by Ray's text, which ends with a traceback of the node."""
    address = _IP.search(text)
    node = f"the node {address[1]}" if address else "the node of the instance"
    errors = [line.strip() for line in text.splitlines() if _ERROR.match(line.strip())]
    return (
        f"{node} cannot run Halimede: {(errors or ['its actor fails'])[-1][:400]}. Install the host's version of "
        "Halimede there, in the Python that runs Ray"
    )


def _why_refused(error: Exception) -> str:
    """Why Ray does not connect: its whole text, such as the versions of both sides, in a line."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    text = "".join(line + (" " if line.endswith((":", ",")) else "; ") for line in lines).rstrip("; ")
    return text[:1000] or type(error).__name__


def _free(
    total: Mapping[str, float], reported: Mapping[str, float] | None, given: Sequence[Shape]
) -> dict[str, float]:
    """What nobody has of a node, of which Ray tells late, and of a node that has just joined nothing yet (None)."""
    free = dict(total) if reported is None else dict.fromkeys(total, 0.0) | dict(reported)
    for name, amount in total.items():
        mine = sum(shape.bundle().get(name, 0.0) for shape in given)
        free[name] = min(free[name], amount - mine)
    return free


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _append(log: Path, data: bytes) -> None:
    if data:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            file.write(data)


async def _serve(descriptor: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    try:
        address, namespace = await receive(reader)
        try:
            await asyncio.to_thread(
                ray.init,
                address,
                namespace=namespace,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
            context = ray.get_runtime_context()
            own = ray.util.get_node_ip_address()
            send(writer, Event("connected", (context.get_node_id(), own)))
        except Exception as error:  # whatever Ray has to say of an address
            send(writer, Event("failed", (_why_refused(error),)))
            await writer.drain()
            return
        engine = Engine(namespace, writer)
        gc.collect()
        gc.freeze()  # Ray's modules are looked at no more
        trim_memory()
        while True:
            engine.answer(await receive(reader))
    except (asyncio.IncompleteReadError, ConnectionError):  # the host is gone
        pass


def _end_with_the_host(host: int) -> None:
    """Die when the host does, also while Ray looks for a cluster that is gone, and nobody listens to the host."""
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != host:  # it has died before that
        os._exit(1)


def main() -> None:
    """Do what the host asks until it is gone."""
    _end_with_the_host(int(sys.argv[2]))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    asyncio.run(_serve(int(sys.argv[1])))
    os._exit(0)  # actors stay, and Ray's own shutdown takes its time


if __name__ == "__main__":
    main()
