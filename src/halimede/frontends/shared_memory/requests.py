"""Requests with inputs or outputs in regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halimede.core.device_tensors import DeviceTensor
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.regions import Piece, Region, RegionTensor
from halimede.core.requests import InferRequest, InferResponse, RepeatingResponse, Respond
from halimede.core.tensors import Tensor
from halimede.frontends.shared_memory.cuda import CudaPiece
from halimede.frontends.shared_memory.registry import Place, Regions


@dataclass(slots=True)
class Places:
    """Where a request's tensors are.

    Attributes:
        inputs: name → where it is, of inputs that are in regions.
        outputs: name → where it goes, of outputs that go into regions.
    """

    inputs: dict[str, Place] = field(default_factory=dict)
    outputs: dict[str, Place] = field(default_factory=dict)


class PlacedTensor(Tensor):
    """An output that was put into a region: the response tells its datatype and its shape."""

    __slots__ = ()

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.datatype, tensor.shape, b"")


def use_regions(request: InferRequest, places: Places, regions: Regions) -> None:
    """Take a request's inputs from regions, and have its outputs put there. They are in use until its final response.

    Args:
        request: has an input, of whatever content, for each that is in a region.
        places: where they are.
        regions: the regions.

    Raises:
        HalimedeError: a region does not exist, or does not reach so far. No region is in use then.
    """
    pieces = {name: regions.piece(place) for name, place in places.inputs.items()}
    outputs = {name: regions.piece(place) for name, place in places.outputs.items()}
    for name, piece in pieces.items():
        tensor = request.inputs[name]
        request.inputs[name] = piece.tensor(tensor.datatype, tensor.shape)
    used = [piece.region for piece in (*pieces.values(), *outputs.values())]
    for region in used:
        region.acquire()
    request.targets = {name: piece for name, piece in outputs.items() if isinstance(piece, Piece)}
    request.on_device = tuple(name for name in outputs if name not in request.targets)
    request.respond = _Delivery(request.respond, outputs, used).respond


class _Delivery:
    """Where the responses to a request go: outputs into regions, the rest on to the client."""

    __slots__ = ("_outputs", "_respond", "_used")

    def __init__(
        self, respond: Respond, outputs: Mapping[str, Piece | CudaPiece], used: Sequence[Region]
    ) -> None:
        self._respond = respond
        self._outputs = outputs
        self._used = used

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response; with the final one the regions are free."""
        try:
            if response is not None and response.error is None:
                response = self._placed(response)
            self._respond(response, final)
        finally:
            if final:
                for region in self._used:
                    region.release()

    def _placed(self, response: InferResponse) -> InferResponse:
        """The response, once its outputs are where the client wants them; or why they cannot be."""
        outputs = self._outputs
        try:
            tensors = [(name, _put(name, tensor, outputs.get(name))) for name, tensor in response.tensors()]
        except HalimedeError as error:
            return InferResponse(error=error)
        if response.repeated:
            return RepeatingResponse(tensors, response.parameters)
        return InferResponse(dict(tensors), response.parameters)


def _put(name: str, tensor: Tensor, piece: Piece | CudaPiece | None) -> Tensor:
    """Put an output into a region if it is to go there, unless whoever computed it has."""
    if piece is None:
        if isinstance(tensor, RegionTensor | DeviceTensor):
            tensor.data  # noqa: B018 - read now, as the region may soon be gone
        return tensor
    size = tensor.byte_size
    if size > piece.length:
        msg = (
            f"shared memory size specified with the request for output '{name}' ({piece.length} bytes) should be at "
            f"least {size} bytes to hold the results"
        )
        raise InvalidArgumentError(msg)
    piece.put(tensor)
    return PlacedTensor(tensor)
