"""A profile: what a sampler saw, as speedscope's document, by stage, and as text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from halimede.frontends.profiling.other_processes import OtherProcess
from halimede.frontends.profiling.stages import STAGES, Frame, stage_of

_FUNCTIONS: Final = 12
_WAITING: Final = ("_worker", "_bootstrap", "_listen")
"""Functions of threads that have nothing to do; a sampler may catch them as it begins or ends."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was sampled.

    Attributes:
        pid: of the process.
        seconds: how long it was looked at.
        rate: how often a second.
        samples: stacks that were at work, the innermost function first, and how often each was seen.
        others: the server's other processes, which were not sampled.
    """

    pid: int
    seconds: float
    rate: int
    samples: Mapping[tuple[Frame, ...], int]
    others: Sequence[OtherProcess]

    @property
    def total(self) -> int:
        """How many samples found a thread at work."""
        return sum(self.samples.values())

    def stages(self) -> dict[str, float]:
        """The share of each stage in the work, from 0 to 1; all stages are there."""
        counts = Counter[str]()
        for stack, count in self.samples.items():
            counts[stage_of(stack)] += count
        total = max(1, self.total)
        return {stage: counts[stage] / total for stage in STAGES}

    def document(self) -> dict[str, Any]:
        """The same for programs, without functions."""
        return {
            "pid": self.pid,
            "seconds": self.seconds,
            "samples": self.total,
            "stages": self.stages(),
            "others": [asdict(each) for each in self.others],
        }

    def text(self) -> str:
        """A table of stages, the functions with the most samples, and the other processes."""
        cores = self.total / self.rate / self.seconds
        head = f"process {self.pid}: {self.seconds:g} s, {self.rate} samples a second, {self.total} of them at work"
        lines = [f"{head} ({cores:.2f} cores)", "", "stage       share"]
        lines += [f"{name:<10} {share:>5.1%}  {STAGES[name]}" for name, share in self.stages().items()]
        lines += ["", "stage       share  function"]
        functions = Counter[tuple[str, str]]()
        for stack, count in self.samples.items():
            if stack:
                functions[stage_of(stack), _name(stack[0])] += count
        for (stage, name), count in functions.most_common(_FUNCTIONS):
            lines.append(f"{stage:<10} {count / max(1, self.total):>5.1%}  {name}")
        if self.others:
            lines += ["", "other processes of the server, not in this profile", "    pid   cores  name"]
            lines += [f"{each.pid:>7} {each.cores:>7.2f}  {each.name}" for each in self.others]
        return "\n".join(lines) + "\n"


def read_samples(document: Mapping[str, Any]) -> dict[tuple[Frame, ...], int]:
    """The stacks of speedscope's document, as in `Profile.samples`; those of threads that only wait are left out."""
    frames = [
        Frame(frame.get("file") or "", frame.get("name") or "") for frame in document["shared"]["frames"]
    ]
    counts = Counter[tuple[Frame, ...]]()
    for profile in document["profiles"]:
        for sample in profile["samples"]:
            stack = tuple(frames[number] for number in reversed(sample))
            if stack and not _waits(stack):
                counts[stack] += 1
    return dict(counts)


def with_stages(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The document with the stage of each stack as its outermost frame, so that a flame graph shows stages first."""
    frames = list(document["shared"]["frames"])
    known = [Frame(frame.get("file") or "", frame.get("name") or "") for frame in frames]
    places = {stage: len(frames) + number for number, stage in enumerate(STAGES)}
    frames += [{"name": stage} for stage in STAGES]
    profiles = []
    for profile in document["profiles"]:
        kept = [
            ([places[stage_of(stack)], *sample], weight)
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
            if (stack := tuple(known[number] for number in reversed(sample))) and not _waits(stack)
        ]
        if kept:
            samples, weights = map(list, zip(*kept, strict=True))
            profiles.append({**profile, "samples": samples, "weights": weights, "endValue": sum(weights)})
    return {**document, "name": name, "shared": {"frames": frames}, "profiles": profiles}


def _waits(stack: Sequence[Frame]) -> bool:
    """Whether the thread waits for something to do."""
    return any(stack[0].function.endswith(name) for name in _WAITING)


def _name(frame: Frame) -> str:
    """How a function is shown."""
    parts = Path(frame.file).parts
    short = "/".join(parts[-2:]) if parts else "?"
    return f"{frame.function} ({short})"
