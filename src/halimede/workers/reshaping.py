"""Outputs of Python models under the shapes that clients see, where the configuration has a `reshape`."""

from math import prod

from halimede.config.signature import Signature, TensorSpec
from halimede.core.errors import InternalError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor


class Reshaping:
    """Gives the outputs of a model the shapes that clients see.

    Args:
        signature: what the model takes and gives.
    """

    __slots__ = ("_lead", "_specs")

    def __init__(self, signature: Signature) -> None:
        self._lead = 1 if signature.max_batch_size > 0 else 0
        self._specs = [spec for spec in signature.outputs.values() if spec.reshaped]

    @classmethod
    def of(cls, signature: Signature) -> "Reshaping | None":
        """That of a model; None if it has nothing to do."""
        made = cls(signature)
        return made if made._specs else None

    def apply(self, response: InferResponse) -> InferResponse:
        """The response with its outputs reshaped, or, if one has too many or too few elements, an error.

        As in Triton, only the batch dimension and the sizes where the configuration has -1 are taken from the model's
        own shape.
        """
        outputs = response.outputs
        for spec in self._specs:
            tensor = outputs.get(spec.name)
            if tensor is not None:
                reshaped = self._reshaped(spec, tensor)
                if reshaped is None:
                    text = f"output tensor shape does not match size of output for '{spec.name}'"
                    return InferResponse(error=InternalError(text))
                outputs[spec.name] = reshaped
        return response

    def _reshaped(self, spec: TensorSpec, tensor: Tensor) -> Tensor | None:
        shape, lead = tensor.shape, self._lead
        places = [lead + place for place, dim in enumerate(spec.backend_dims) if dim == -1]
        if places and places[-1] >= len(shape):
            return None
        sizes = iter([shape[place] for place in places])
        wanted = shape[:lead] + tuple([next(sizes) if dim == -1 else dim for dim in spec.dims])
        return tensor.reshaped(wanted) if prod(wanted) == prod(shape) else None
