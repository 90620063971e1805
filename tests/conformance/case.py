"""A case."""

from dataclasses import dataclass

from tests.conformance.differences import Difference
from tests.conformance.servers import PLAIN, Setting
from tests.conformance.steps import Step


@dataclass(frozen=True, slots=True)
class Case:
    """Steps whose answers are to be alike.

    Attributes:
        name: what it shows; unique in its module.
        steps: the steps, one after the other.
        differs: the difference that is meant, if there is one.
        ignored: patterns of paths that are not compared.
        setting: how the servers are started.
        alone: whether no other case is taken at the same time, as it measures or changes what all share.
    """

    name: str
    steps: tuple[Step, ...]
    differs: Difference | None = None
    ignored: tuple[str, ...] = ()
    setting: Setting = PLAIN
    alone: bool = False


def case(
    name: str,
    *steps: Step,
    differs: Difference | None = None,
    ignored: tuple[str, ...] = (),
    setting: Setting = PLAIN,
    alone: bool = False,
) -> Case:
    """A case of those steps."""
    return Case(name, steps, differs, ignored, setting, alone)
