"""What transform jobs are given of the rest of the host."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from halimede.core.clock import WALL_CLOCK
from halimede.hosting.store.source import ObjectInfo
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.inputs import Listing
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.lanes import Lanes
from halimede.hosting.transform.sender import Exchanges, HttpExchanges
from halimede.hosting.transform.spec import TransformSpec
from halimede.hosting.transform.state import TransformState
from halimede.http1.client import CallError, call

_PARAMETERS_TIMEOUT_S = 10.0


class JobObjects(Listing, Protocol):
    """What a job needs of the objects of an account."""

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of an object."""

    def file(self, url: str, directory: Path) -> AbstractAsyncContextManager[Path]:
        """An object as a file, which is there during the block."""

    async def write(self, url: str, content: Path) -> None:
        """Put an object, whose bytes are those of a file. It is there whole, or as it was before."""


class JobFleet(Protocol):
    """The instances of a job."""

    @property
    def waiting(self) -> str:
        """Why there is no room yet for one of them; "" if there is, or nobody knows."""

    async def start(self) -> None:
        """Have all of them answer. It may be cancelled.

        Raises:
            ApiError: one does not come up.
        """

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of these."""

    async def retire(self) -> None:
        """End all of them. It may be cancelled and called again."""

    async def forget(self) -> None:
        """Look after none of them any more, and let them run on."""


async def execution_parameters(lanes: Lanes) -> Mapping[str, Any]:
    """What an instance says of how it likes its requests (``GET /execution-parameters``), if it does."""
    for target in list(lanes.targets):
        try:
            status, body = await call(
                target.pool, "GET", "/execution-parameters", timeout_s=_PARAMETERS_TIMEOUT_S
            )
            found = orjson.loads(body) if status == 200 else {}
        except CallError:
            continue  # another one may answer
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
    return {}


@dataclass(frozen=True, slots=True)
class JobDependencies:
    """What jobs are made with.

    Attributes:
        state: what is kept of them.
        objects_of: the objects that an account may use.
        make_fleet: makes the instances of a job, which join and leave lanes; some of them may run already.
        directory: where temporary files are.
        tell: is told of a job's events, a line each.
        now: the time, in seconds since 1970.
        make_exchanges: sends requests of a job.
        parameters: what an instance answers to ``/execution-parameters``.
    """

    state: TransformState
    objects_of: Callable[[str], JobObjects]
    make_fleet: Callable[[JobRecord, TransformSpec, Lanes, Sequence[RunningInstance]], JobFleet]
    directory: Path
    tell: Callable[[JobRecord, str], None]
    now: Callable[[], float] = WALL_CLOCK.now
    make_exchanges: Callable[[TransformSpec], Exchanges] = HttpExchanges
    parameters: Callable[[Lanes], Awaitable[Mapping[str, Any]]] = execution_parameters
