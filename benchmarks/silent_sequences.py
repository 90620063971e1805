"""What many sequences take that are silent: memory, and the loop's time when all of them end for it.

Run as a program with the number of sequences. The engine, with a Python accumulator, runs in this process on a real
event loop; each sequence has had one request. Prints JSON: `memory` in bytes a sequence, its slot included, and `reap`
in ms, the longest turn of the loop until none is left.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable

import uvloop

from benchmarks import python_models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import resident_mb
from halimede.cli.tuning import tune_garbage_collector
from halimede.core.clock import LoopClock
from halimede.core.datatypes import INT32
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.served_model import ServedModel
from halimede.engine.settings import ControlMode, EngineSettings

MODEL = "accumulator"
AT_ONCE = 64
SILENT_S = 6  # time enough for each of them to get its request
OVER_WITHIN_S = 60


async def figures(sequences: int) -> dict[str, float]:
    """Both figures."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    repository = python_models.accumulator("oldest", sequences, SILENT_S * 1_000_000)
    settings = EngineSettings((repository,), ControlMode.EXPLICIT)
    lifecycle = Lifecycle(settings, clock, loop)
    tune_garbage_collector()
    await lifecycle.load(MODEL, {})
    await ask(lifecycle.find(MODEL), range(1, 2 * AT_ONCE), end=True)
    await lifecycle.unload(MODEL)

    before = own_memory()
    await lifecycle.load(MODEL, {})
    model = lifecycle.find(MODEL)
    for first in range(1, sequences + 1, AT_ONCE):
        await ask(model, range(first, min(first + AT_ONCE, sequences + 1)))
    if model.sequences != sequences:
        raise BenchmarkError(f"There are {model.sequences} sequences, and not {sequences}")
    taken = own_memory() - before
    hold_up_loop()
    reap_s = await longest_turn(loop, model)
    await lifecycle.stop(OVER_WITHIN_S)
    clock.close()
    return {"memory": taken / sequences, "reap": reap_s * 1e3}


async def ask(model: ServedModel, ids: Iterable[int], *, end: bool = False) -> None:
    """Begin these sequences all at once, and wait for the answers."""
    answers = [start(model, correlation_id, end=end) for correlation_id in ids]
    for answer in answers:
        if error := (await answer).error:
            raise BenchmarkError(str(error))


def start(model: ServedModel, correlation_id: int, *, end: bool) -> asyncio.Future[InferResponse]:
    """Begin a sequence, which may end at once: the answer."""
    answer: asyncio.Future[InferResponse] = asyncio.get_running_loop().create_future()

    def respond(response: InferResponse | None, final: bool) -> None:
        assert response is not None
        answer.set_result(response)

    inputs = {"INPUT0": Tensor(INT32, (1, 1), bytes(4))}
    request = InferRequest(MODEL, inputs, respond, sequence_id=correlation_id)
    request.sequence_start, request.sequence_end = True, end
    model.infer(request)
    return answer


def hold_up_loop() -> None:
    """Let all sequences have been silent for too long when the loop goes on, so that they end in one turn."""
    time.sleep(SILENT_S)


async def longest_turn(loop: asyncio.AbstractEventLoop, model: ServedModel) -> float:
    """The longest time between two turns of the loop until the model has no sequence any more, in s."""
    longest, last = 0.0, time.perf_counter()
    ends = last + SILENT_S + OVER_WITHIN_S
    while model.sequences:
        await asyncio.sleep(0)
        now = time.perf_counter()
        if now > ends:
            raise BenchmarkError(f"There are still {model.sequences} sequences")
        longest, last = max(longest, now - last), now
    return longest


def own_memory() -> float:
    """Resident memory of this process, in bytes."""
    return resident_mb(os.getpid()) * 1e6


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(figures(int(sys.argv[1])))))
