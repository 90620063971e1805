"""What is counted of the copies that a shadow variant gets: plain numbers, as `counts` has them of invocations."""

from dataclasses import dataclass, field

MOST_OUTPUTS = 32
"""So many outputs of a variant are counted by name; the others count for the whole answer only."""


@dataclass(slots=True)
class Agreement:
    """How an output of two variants compares, one entry a comparison.

    Attributes:
        compared: how often it was compared.
        agreed: how often both were equal within the tolerance.
        equal: the share of elements that were.
        absolute: the largest absolute difference, of answers with finite numbers.
        relative: the largest difference relative to the larger number, from 0 to 2.
        top: the share of rows whose largest number is at the same place, of floats in rows of two or more.
    """

    compared: int = 0
    agreed: int = 0
    equal: list[float] = field(default_factory=list)
    absolute: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    top: list[float] = field(default_factory=list)

    def add(self, other: "Agreement") -> None:
        """Count what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class ShadowCounts:
    """What has become of copies, and how their answers compare.

    Attributes:
        lost: copies that were not sent, or whose answer was given up with the process that waited for it.
        skipped: copies whose answer came, and was not compared.
        same_status: both variants succeeded, or both failed.
        statuses: copies of which both statuses are known.
        primary_ns: how long the production variant's instance took for what was copied.
        whole: of all outputs of an answer together.
        outputs: by the output's name.
    """

    lost: int = 0
    skipped: int = 0
    same_status: int = 0
    statuses: int = 0
    primary_ns: list[int] = field(default_factory=list)
    whole: Agreement = field(default_factory=Agreement)
    outputs: dict[str, Agreement] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything has been counted."""
        return bool(self.lost or self.skipped or self.statuses or self.whole.compared)

    def __add__(self, other: "ShadowCounts") -> "ShadowCounts":
        """Both counted together; this one is changed."""
        if other:
            self.lost += other.lost
            self.skipped += other.skipped
            self.same_status += other.same_status
            self.statuses += other.statuses
            self.primary_ns += other.primary_ns
            self.whole.add(other.whole)
            for name, agreement in other.outputs.items():
                mine = self.output(name)
                if mine is not None:
                    mine.add(agreement)
        return self

    def output(self, name: str) -> Agreement | None:
        """Where the output of that name is counted; None if there are too many names."""
        found = self.outputs.get(name)
        if found is None and len(self.outputs) < MOST_OUTPUTS:
            found = self.outputs[name] = Agreement()
        return found
