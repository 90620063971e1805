"""Texts over OpenAI's API beside the bare pipeline, what a streamed token costs the server, and idle streams."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.front_ends import own_cpu_ns
from benchmarks.language import writer
from benchmarks.language.idle import IDLE_STREAMS, idle_streams
from benchmarks.language.streams import stream
from benchmarks.processes import Server, halimede, process
from benchmarks.tools import ROOT
from benchmarks.workload import Compare, Sample, Sides, Workload

CALLERS = (1, 16)
RATE_GOAL = 0.95
FIRST_GOAL_MS = 3.0
EVENT_GOAL_US = 12.0
PROMPT = "Say in a few words what happens to a request from the socket to the model and back, and who waits for whom."
TOKENS = 96

_NEEDS = ("openvino_genai", "openvino_tokenizers", "transformers", "torch")


def workloads() -> list[Workload]:
    """Tokens a second, the time to the first token, and what each takes."""
    missing = next((name for name in _NEEDS if find_spec(name) is None), "")
    rows = [
        Workload(
            f"language-tokens-c{callers}",
            "tokens/s",
            Compare.AT_LEAST,
            RATE_GOAL,
            partial(tokens, callers),
            missing=missing,
        )
        for callers in CALLERS
    ]
    return [
        *rows,
        Workload(
            "language-first-token", "ms", Compare.AT_MOST_MORE, FIRST_GOAL_MS, first_token, missing=missing
        ),
        Workload(
            "language-event-cpu", "µs of CPU", Compare.AT_MOST, 1.0, partial(event_cpu, 16), missing=missing
        ),
        Workload(
            f"language-{IDLE_STREAMS}-idle-streams",
            "KB each",
            Compare.AT_MOST,
            1.0,
            idle_streams,
            once=True,
        ),
    ]


@contextmanager
def tokens(callers: int, seconds: float) -> Iterator[Sides]:
    """Tokens a second of so many callers."""
    with served() as server, bare() as loop:
        yield Sides(
            lambda: Sample(stream(server.http_port, callers, seconds, PROMPT, TOKENS).rate),
            lambda: Sample(loop(callers, seconds)["rate"]),
        )


@contextmanager
def first_token(seconds: float) -> Iterator[Sides]:
    """The median time to the first token, one caller at a time."""
    with served() as server, bare() as loop:
        yield Sides(
            lambda: Sample(stream(server.http_port, 1, seconds, PROMPT, 4).first * 1e3),
            lambda: Sample(loop(1, seconds, 4)["first"] * 1e3),
        )


@contextmanager
def event_cpu(callers: int, seconds: float) -> Iterator[Sides]:
    """The CPU time of the server's own process for a token that is streamed, and what it may be."""
    with served() as server:

        def sample() -> Sample:
            cpu = own_cpu_ns(server)
            streamed = stream(server.http_port, callers, seconds, PROMPT, TOKENS)
            return Sample((own_cpu_ns(server) - cpu) / streamed.tokens / 1e3)

        yield Sides(sample, lambda: Sample(EVENT_GOAL_US))


@contextmanager
def served() -> Iterator[Server]:
    """The model behind OpenAI's API."""
    with halimede(writer.repository(), None, ["--allow-openai=true"]) as server:
        yield server


@contextmanager
def bare() -> Iterator[Callable[..., dict[str, float]]]:
    """The bare pipeline, which is called with callers and seconds."""
    directory = str(writer.version_directory())
    count = str(len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "benchmarks.language.bare", directory, count]
    with process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        asking, answers = child.stdin, child.stdout
        answers.readline()

        def run(callers: int, seconds: float, tokens: int = TOKENS) -> dict[str, float]:
            asked = {"callers": callers, "seconds": seconds, "prompt": PROMPT, "tokens": tokens}
            asking.write(json.dumps(asked).encode() + b"\n")
            asking.flush()
            answer: dict[str, Any] = json.loads(answers.readline())
            return answer

        yield run
