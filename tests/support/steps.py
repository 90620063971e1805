"""A watcher of steps that take long."""

from halimede.core.steps import Step


class SeenSteps:
    """Remembers what it is told.

    Attributes:
        under_way: the steps that have not ended.
        ended_steps: those that have, in their order: text, how many units were done, and of how many.
    """

    def __init__(self) -> None:
        self.under_way: list[Step] = []
        self.ended_steps: list[tuple[str, int, int | None]] = []

    def begun(self, step: Step) -> None:
        """Remember it."""
        self.under_way.append(step)

    def ended(self, step: Step) -> None:
        """Remember how far it has come."""
        self.under_way.remove(step)
        done = step.done if step.position is None else step.position()
        self.ended_steps.append((step.text, done, step.total))
