"""Requests with inputs or outputs in regions."""

from collections.abc import Mapping
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
    """Where a request's tensors are. Requests of equal text share it.

    Attributes:
        inputs: name → where it is, of inputs that are in regions.
        outputs: name → where it goes, of outputs that go into regions.
        found: the parts of regions that these were for the last request, None before the first.
    """

    inputs: dict[str, Place] = field(default_factory=dict)
    outputs: dict[str, Place] = field(default_factory=dict)
    found: "_Pieces | None" = field(default=None, init=False, repr=False, compare=False)


class _Pieces:
    """The parts of regions that places are, as long as no region comes or goes.

    Attributes:
        state: of the regions.
        inputs: name → part, of inputs.
        outputs: name → part, of outputs.
        targets: those of the outputs that worker processes can write to.
        on_device: names of the other outputs.
        regions: all regions that these are of, each once.
    """

    __slots__ = ("inputs", "on_device", "outputs", "regions", "state", "targets")

    def __init__(self, places: Places, regions: Regions) -> None:
        """Find them.

        Raises:
            HalimedeError: a region does not exist, or does not reach so far.
        """
        self.state = regions.state
        self.inputs = {name: regions.piece(place) for name, place in places.inputs.items()}
        self.outputs = {name: regions.piece(place) for name, place in places.outputs.items()}
        self.targets = {name: piece for name, piece in self.outputs.items() if isinstance(piece, Piece)}
        self.on_device = tuple(name for name in self.outputs if name not in self.targets)
        every: list[Region] = [piece.region for piece in (*self.inputs.values(), *self.outputs.values())]
        self.regions = tuple(dict.fromkeys(every))


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
    found = places.found
    if found is None or found.state is not regions.state:
        found = places.found = _Pieces(places, regions)
    inputs = request.inputs
    for name, piece in found.inputs.items():
        tensor = inputs[name]
        inputs[name] = piece.tensor(tensor.datatype, tensor.shape)
    for region in found.regions:
        region.acquire()
    request.targets = found.targets
    request.on_device = found.on_device
    request.respond = _Delivery(request.respond, found).respond


class _Delivery:
    """Where the responses to a request go: outputs into regions, the rest on to the client."""

    __slots__ = ("_found", "_respond")

    def __init__(self, respond: Respond, found: _Pieces) -> None:
        self._respond = respond
        self._found = found

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response; with the final one the regions are free."""
        try:
            if response is not None and response.error is None:
                response = _placed(response, self._found.outputs)
            self._respond(response, final)
        finally:
            if final:
                for region in self._found.regions:
                    region.release()


def _placed(response: InferResponse, outputs: Mapping[str, Piece | CudaPiece]) -> InferResponse:
    """The response, once its outputs are where the client wants them; or why they cannot be."""
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
