"""What a ModelInferRequest says but for its id and its raw tensors, checked and ready to make requests of it."""

from collections.abc import Mapping, Sequence

from halimede.core.datatypes import BY_NAME, INVALID, Datatype
from halimede.core.element_counts import check_rank
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.requests import InferRequest, Respond, already_there, request_prefix
from halimede.core.tensors import Buffer, Tensor
from halimede.frontends.grpc.codec_contents import contents_data
from halimede.frontends.grpc.codec_parameters import (
    RequestParameters,
    read_output,
    read_place,
    read_request_parameters,
)
from halimede.frontends.grpc.codec_response import ResponseLayout
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest
from halimede.frontends.grpc.versions import parse_version
from halimede.frontends.request_bounds import check_count
from halimede.frontends.shared_memory.requests import Places

Input = tuple[str, Datatype, tuple[int, ...]]


class RequestPlan:
    """All of a request but its id and raw tensors.

    A request that contradicts itself has a plan, too: its client hears first whether there is the model.

    Attributes:
        model_name: the model.
        version_text: the version as the client wrote it.
        model_version: the version, -1 for the highest that is ready.
        inputs: (name, datatype, shape) of each input, in order.
        contents: the inputs' data where it is not raw, else None.
        outputs: names of the outputs wanted, empty for all.
        classes: output → how many classes of it are wanted; empty for tensors only.
        parameters: the request's parameters, or None.
        places: where its tensors are that are in regions, None if none is.
        layout: the response's bytes, remembered from the last request of this plan.
        error: why no request can be made of it, as class and text; None if one can.
    """

    __slots__ = (
        "__weakref__",
        "classes",
        "contents",
        "error",
        "inputs",
        "layout",
        "model_name",
        "model_version",
        "outputs",
        "parameters",
        "places",
        "version_text",
    )

    def __init__(self, message: ModelInferRequest, *, raw: bool) -> None:
        self.model_name: str = message.model_name
        self.version_text: str = message.model_version
        self.model_version = parse_version(message.model_version)
        self.parameters: RequestParameters | None = None
        self.places: Places | None = None
        self.inputs: tuple[Input, ...] = ()
        self.contents: list[Buffer] | None = None
        self.classes: dict[str, int] = {}
        self.outputs: tuple[str, ...] = ()
        self.layout = ResponseLayout()
        self.error: tuple[type[HalimedeError], str] | None = None
        try:
            self._read(message, raw=raw)
        except HalimedeError as error:
            self.error = type(error), error.message

    def _read(self, message: ModelInferRequest, *, raw: bool) -> None:
        """Read all but the model, in the order in which Triton tells what is wrong."""
        check_count("inputs", len(message.inputs))
        check_count("outputs", len(message.outputs))
        check_count("parameters", len(message.parameters))
        if message.parameters:
            self.parameters = read_request_parameters(message.parameters)
        self.inputs = _read_inputs(message)
        places = Places()
        self.contents = _read_contents(message, self.inputs, places, raw=raw)
        outputs: dict[str, None] = {}
        for output in message.outputs:
            if output.name in outputs:
                raise _RepeatedTensorError(already_there("output", output.name))
            outputs[output.name] = None
            if not output.parameters:
                continue
            count, place = read_output(output.name, output.parameters)
            if count:
                self.classes[output.name] = count
            if place is not None:
                places.outputs[output.name] = place
        if places.inputs or places.outputs:
            self.places = places
        self.outputs = tuple(outputs)

    def request(
        self,
        identifier: str,
        tensors: list[memoryview],
        respond: Respond,
        received_ns: int,
        forwarded: Mapping[str, str] | None,
    ) -> InferRequest:
        """A request of this plan.

        Args:
            identifier: the client's identifier.
            tensors: the raw tensors, one for each input that is not in a region, or empty if the plan has their
                contents.
            respond: where responses go.
            received_ns: when the request was complete.
            forwarded: headers that become parameters, or None.

        Raises:
            HalimedeError: the request contradicts itself, or has fewer or more tensors than inputs.
        """
        if self.error is not None:
            raise self._refusal(identifier)
        data: Sequence[Buffer] = tensors if self.contents is None else self.contents
        if self.places is not None and self.contents is None:
            data = self._among_region_inputs(tensors)
        if len(data) < len(self.inputs):
            raise _no_data(self.inputs[len(data)][0], self.model_name)
        if len(data) > len(self.inputs):
            more = len(data) - len(self.inputs)
            msg = (
                f"unexpected raw_input_contents for model '{self.model_name}': there are {more} more than inputs "
                f"whose data they could be"
            )
            raise InvalidArgumentError(msg)
        inputs = {}
        for (name, datatype, shape), view in zip(self.inputs, data, strict=True):
            inputs[name] = Tensor(datatype, shape, view)
        request = InferRequest(
            self.model_name,
            inputs,
            respond,
            model_version=self.model_version,
            id=identifier,
            outputs=self.outputs,
            received_ns=received_ns,
        )
        parameters = self.parameters
        if parameters is not None:
            request.parameters = parameters.custom.copy() or None
            request.priority = parameters.priority
            request.timeout_us = parameters.timeout_us
            request.sequence_id = parameters.sequence_id
            request.sequence_start = parameters.sequence_start
            request.sequence_end = parameters.sequence_end
        if forwarded:
            request.parameters = {**(request.parameters or {}), **forwarded}
        return request

    def _among_region_inputs(self, tensors: Sequence[Buffer]) -> list[Buffer]:
        """The data of each input, none of those that are in regions.

        They are fewer if there are too few tensors, and more if some are left over.
        """
        assert self.places is not None, "some input or output is in a region"
        data: list[Buffer] = []
        left = iter(tensors)
        for name, _, _ in self.inputs:
            tensor = b"" if name in self.places.inputs else next(left, None)
            if tensor is None:
                break
            data.append(tensor)
        return [*data, *left]

    def _refusal(self, identifier: str) -> HalimedeError:
        assert self.error is not None, "only a plan with an error refuses"
        kind, text = self.error
        return kind(request_prefix(identifier) + text if kind is _RepeatedTensorError else text)


class _RepeatedTensorError(InvalidArgumentError):
    """An input or output is in the request twice. The error starts with the id of the request, as in Triton."""


def _read_inputs(message: ModelInferRequest) -> tuple[Input, ...]:
    inputs: dict[str, Input] = {}
    for entry in message.inputs:
        name = entry.name
        if name in inputs:
            raise _RepeatedTensorError(already_there("input", name))
        check_rank(name, entry.shape)
        inputs[name] = (name, BY_NAME.get(entry.datatype, INVALID), tuple(entry.shape))
    return tuple(inputs.values())


def _read_contents(
    message: ModelInferRequest, inputs: tuple[Input, ...], places: Places, *, raw: bool
) -> list[Buffer] | None:
    """Every input's data, from its contents, none of one in a region, whose place goes to `places`.

    None if the data is raw, and there are no contents, as it should be.
    """
    model = message.model_name
    data: list[Buffer] = []
    for entry, (name, datatype, _) in zip(message.inputs, inputs, strict=True):
        contents = entry.HasField("contents")
        if entry.parameters:
            place = read_place(name, entry.parameters)
            if place is not None:
                if contents:
                    raise _unexpected_contents(name, model)
                places.inputs[name] = place
                data.append(b"")
                continue
        if contents:
            if raw:
                msg = (
                    f"contents field must not be specified when using raw_input_contents for '{name}' "
                    f"for model '{model}'"
                )
                raise InvalidArgumentError(msg)
            data.append(contents_data(entry.contents, datatype, name, model))
        elif not raw:
            raise _no_data(name, model)
    return None if raw else data


def _unexpected_contents(name: str, model: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unexpected 'content' provided when using shared memory for input tensor '{name}' for model '{model}'"
    )


def _no_data(name: str, model: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unable to find data for input tensor '{name}' for model '{model}' in request."
    )
