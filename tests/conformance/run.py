"""Take each case with both servers, and say what differs."""

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.errors import BenchmarkError
from tests.conformance.answers import Answer
from tests.conformance.case import Case
from tests.conformance.compare import ABSENT, Line, differing
from tests.conformance.differences import EVERYWHERE, Difference
from tests.conformance.normalise import normalised
from tests.conformance.servers import Setting, Subject, both


class Verdict(Enum):
    """What came of a case."""

    ALIKE = "alike"
    DELIBERATE = "deliberate"
    DIFFERENT = "different"
    VANISHED = "no longer differs"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case, with the values that differ and the differences that explain some of them."""

    subject: str
    case: Case
    verdict: Verdict
    lines: tuple[Line, ...]
    meant: tuple[Difference, ...] = ()


def run(chosen: Sequence[tuple[str, Case]], jobs: int = 1) -> Iterator[Outcome]:
    """The outcome of each case, given with its subject; so many cases are taken at a time, but for those alone."""
    settings: dict[Setting, list[tuple[str, Case]]] = {}
    for subject, case in sorted(chosen, key=lambda one: one[1].alone):
        settings.setdefault(case.setting, []).append((subject, case))
    for setting, cases in settings.items():
        waiting = deque(cases)
        try:
            yield from run_setting(setting, waiting, jobs)
        except BenchmarkError as error:  # of a server that does not start
            theirs = str(error).startswith("tritonserver")
            line = Line("start", str(error), ABSENT) if theirs else Line("start", ABSENT, str(error))
            yield from (Outcome(subject, case, Verdict.DIFFERENT, (line,)) for subject, case in waiting)


def run_setting(setting: Setting, waiting: deque[tuple[str, Case]], jobs: int) -> Iterator[Outcome]:
    """The outcomes of all cases that wait, with servers that are started again if one has crashed."""
    crashed = False
    while waiting:
        with both_running(setting) as subjects:
            while waiting and alive(subjects):
                group = next_group(waiting, 1 if crashed else jobs)
                outcomes = outcomes_of(group, subjects)
                crashed = not alive(subjects)
                if crashed and len(group) > 1:  # whose fault it was shows when they are taken one by one
                    waiting.extendleft(reversed(group))
                else:
                    yield from outcomes


@contextmanager
def both_running(setting: Setting) -> Iterator[tuple[Subject, Subject]]:
    """Both servers, with repositories in a temporary directory."""
    with (
        tempfile.TemporaryDirectory(prefix="conformance-") as directory,
        both(setting, Path(directory)) as subjects,
    ):
        yield subjects


def alive(subjects: tuple[Subject, Subject]) -> bool:
    """Whether both servers still run."""
    return all(one.server.child.poll() is None for one in subjects)


def next_group(waiting: deque[tuple[str, Case]], size: int) -> list[tuple[str, Case]]:
    """The cases that are taken at the same time next, out of those that wait."""
    group = [waiting.popleft()]
    while waiting and len(group) < size and not waiting[0][1].alone:
        group.append(waiting.popleft())
    return group


def outcomes_of(group: list[tuple[str, Case]], subjects: tuple[Subject, Subject]) -> list[Outcome]:
    """The outcomes of cases that are taken at the same time, each with both servers at the same time."""
    with ThreadPoolExecutor(2 * len(group)) as pool:
        answers = [[pool.submit(taken, case, one) for one in subjects] for _, case in group]
        return [
            judged(subject, case, tuple(differing(theirs.result(), ours.result())))
            for (subject, case), (theirs, ours) in zip(group, answers, strict=True)
        ]


def taken(case: Case, subject: Subject) -> Answer:
    """The answers to all steps, each with the number of its step if there are several."""
    answers: Answer = {}
    for number, step in enumerate(case.steps, 1):
        answer = step.take(subject) or {}
        prefix = f"step {number}: " if len(case.steps) > 1 else ""
        answers |= {f"{prefix}{path}": value for path, value in answer.items()}
        if answer.get("no answer") == "TimeoutError":
            break  # nothing after it would be answered either
    if subject.server.child.poll() is not None:
        answers["ended with status"] = subject.server.child.returncode
    return normalised(answers, subject.places, case.ignored)


def judged(subject: str, case: Case, lines: tuple[Line, ...]) -> Outcome:
    """The outcome of a case whose answers differ in those values."""
    possible = [one for one in (case.differs, *EVERYWHERE) if one is not None]
    meant = tuple(one for one in possible if any(one.explains(subject, line) for line in lines))
    unexplained = tuple(line for line in lines if not any(one.explains(subject, line) for one in meant))
    if unexplained:
        return Outcome(subject, case, Verdict.DIFFERENT, unexplained, meant)
    if case.differs is not None and case.differs not in meant:
        return Outcome(subject, case, Verdict.VANISHED, lines, meant)
    return Outcome(subject, case, Verdict.DELIBERATE if lines else Verdict.ALIKE, lines, meant)
