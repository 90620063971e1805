"""Tensors of ensembles whose names are probably misspelt: one that is read but never written, beside one never read."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig

_MAX_COMPARED: Final = 1_000_000
"""Pairs of characters: the length of all names that nothing writes, times that of all others. No longer ones are
compared, as that takes seconds."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The right name for a tensor.

    Attributes:
        step: the step whose map has the wrong one.
        side: the map, `input_map` or `output_map`.
        key: its entry.
        tensor: the right name.
    """

    step: int
    side: str
    key: str
    tensor: str

    @property
    def where(self) -> str:
        """Path of the entry."""
        return f'ensemble_scheduling.step[{self.step}].{self.side}["{self.key}"]'

    @property
    def fix(self) -> str:
        """The entry with the right name."""
        return f'{self.side} {{ key: "{self.key}" value: "{self.tensor}" }}'

    def describe(self, config: ModelConfig) -> str:
        """What the step does with the wrong name in a configuration, and the right one."""
        step = config.ensemble_scheduling.step[self.step]
        wrong = getattr(step, self.side)[self.key]
        does = (
            "reads '{}', which nothing writes"
            if self.side == "input_map"
            else "writes '{}', which nothing reads"
        )
        return f"step {self.step} {does.format(wrong)}; did you mean '{self.tensor}'?"


def find_corrections(config: ModelConfig) -> dict[str, Correction]:
    """Tensor → the correction that it needs; both the wrong and the right name are there.

    Empty if there are so many tensors, or names so long, that the comparison would take long.
    """
    steps = config.ensemble_scheduling.step
    inputs = [entry.name for entry in config.input]
    outputs = [entry.name for entry in config.output]
    readers = _places(config, "input_map")
    writers = _places(config, "output_map")
    there = {*inputs, *writers}
    unread = [
        name for name in dict.fromkeys([*inputs, *writers]) if name not in readers and name not in outputs
    ]
    unwritten = [name for name in dict.fromkeys([*readers, *outputs]) if name not in there]
    found: dict[str, Correction] = {}
    if sum(map(len, unwritten)) * sum(map(len, there)) > _MAX_COMPARED:
        return found
    reads = [set(step.input_map.values()) for step in steps]
    for wanted in unwritten:
        made_before = {
            *inputs,
            *(name for name, (step, _) in writers.items() if wanted not in reads[step]),
        }
        free = [name for name in unread if name not in found]
        match = get_close_matches(wanted, [name for name in free if name in made_before], 1)
        if not match and len(unwritten) == len(free) == 1:
            match = [name for name in free if name in made_before]
        if wanted in readers:
            match = match or get_close_matches(wanted, sorted(made_before), 1)
            if match:
                correction = Correction(readers[wanted][0], "input_map", readers[wanted][1], match[0])
                found[wanted] = found[match[0]] = correction
        elif match and match[0] in writers:
            correction = Correction(writers[match[0]][0], "output_map", writers[match[0]][1], wanted)
            found[wanted] = found[match[0]] = correction
    return found


def _places(config: ModelConfig, side: str) -> dict[str, tuple[int, str]]:
    """Tensor → step and key of the first entry that has it."""
    places: dict[str, tuple[int, str]] = {}
    for index, step in enumerate(config.ensemble_scheduling.step):
        entries = getattr(step, side)
        for key in sorted(entries):
            places.setdefault(entries[key], (index, key))
    return places


def corrected(config: ModelConfig) -> ModelConfig:
    """A copy of the configuration with the corrections."""
    copy = ModelConfig()
    copy.CopyFrom(config)
    for correction in find_corrections(config).values():
        entries = getattr(copy.ensemble_scheduling.step[correction.step], correction.side)
        entries[correction.key] = correction.tensor
    return copy
