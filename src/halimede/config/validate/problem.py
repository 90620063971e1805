"""One thing that is wrong with a model."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a model.

    Attributes:
        model: the model's name.
        where: path of the field, such as ``input[0].dims``; "" for the model as a whole. A field that is
            missing is named all the same.
        message: what is wrong.
        fix: the line of `config.pbtxt` that would fix it; "" where no line would.
    """

    model: str
    where: str
    message: str
    fix: str = ""

    def naming_model(self) -> "Problem":
        """The same, with the model's name at the end of the message."""
        return replace(self, message=f"{self.message} for {self.model}")
