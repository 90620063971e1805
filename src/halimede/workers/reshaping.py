"""Outputs of Python models under the shapes that clients see, where the configuration has a `reshape`."""

from halimede.config.signature import Signature, client_shape
from halimede.core.errors import InternalError
from halimede.core.requests import InferResponse, RepeatingResponse
from halimede.core.tensors import Tensor


class Reshaping:
    """Gives the outputs of a model the shapes that clients see.

    Args:
        signature: what the model takes and gives.
    """

    __slots__ = ("_lead", "_specs")

    def __init__(self, signature: Signature) -> None:
        self._lead = 1 if signature.max_batch_size > 0 else 0
        self._specs = {name: spec for name, spec in signature.outputs.items() if spec.reshaped}

    @classmethod
    def of(cls, signature: Signature) -> "Reshaping | None":
        """That of a model; None if it has nothing to do."""
        made = cls(signature)
        return made if made._specs else None

    def apply(self, response: InferResponse) -> InferResponse:
        """The response with its outputs reshaped, or, if one has too many or too few elements, an error."""
        try:
            tensors = [(name, self._reshaped(name, tensor)) for name, tensor in response.tensors()]
        except InternalError as error:
            return InferResponse(error=error)
        if len(tensors) > len(response.outputs):
            return RepeatingResponse(tensors, response.parameters)
        response.outputs.update(tensors)
        return response

    def _reshaped(self, name: str, tensor: Tensor) -> Tensor:
        spec = self._specs.get(name)
        if spec is None:
            return tensor
        return tensor.reshaped(client_shape(spec, tensor.shape, self._lead))
