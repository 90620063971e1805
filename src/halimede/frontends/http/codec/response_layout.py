"""What does not change from one response to the next of the same shapes."""

from collections.abc import Mapping, Sequence

from halimede.core.tensors import Buffer, Tensor
from halimede.engine.served_model import ServedModel

BinaryOutput = tuple[str, str, tuple[int, ...], int]
"""Name, datatype, shape and bytes of an output that follows the JSON."""

Headers = tuple[tuple[str, str], ...]
"""Names and values."""


class Layout:
    """The last response to a plan: what its outputs were, and the JSON before them.

    Attributes:
        model: name and version of the model.
        outputs: (name, datatype, shape, bytes) of each output.
        head: the JSON.
        content_type: the media type of JSON and outputs together.
        headers: what goes with them.
    """

    __slots__ = ("content_type", "head", "headers", "model", "outputs")

    def __init__(
        self,
        model: tuple[str, int],
        outputs: Sequence[object],
        head: bytes,
        content_type: str,
        headers: Headers,
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.head = head
        self.content_type = content_type
        self.headers = headers

    def parts(self, model: ServedModel, tensors: Mapping[str, Tensor]) -> list[Buffer] | None:
        """The body, if it differs from the last one in nothing but the bytes of its outputs."""
        if len(tensors) != len(self.outputs) or (model.name, model.version) != self.model:
            return None
        parts: list[Buffer] = [self.head]
        for (name, tensor), known in zip(tensors.items(), self.outputs, strict=True):
            data = tensor.data
            if (name, tensor.datatype.name, tensor.shape, len(data)) != known:
                return None
            parts.append(data)
        return parts
