"""Backend `repeat`: a model that answers with the elements of its input, one by one. For tests."""

from threading import Thread
from time import monotonic_ns, sleep

import numpy as np

from halimede.backends.base import BackendModel, Instance, InstanceSpec
from halimede.backends.batch import Batch, Send
from halimede.backends.decoupled import check_tensors
from halimede.core.datatypes import INT32, UINT32
from halimede.core.errors import CancelledError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor


class RepeatModel(BackendModel):
    """IN (INT32[n]), DELAY (UINT32[n]) and WAIT (UINT32[1]) → n responses OUT (INT32[1]) and IDX (UINT32[1]).

    DELAY is the time in milliseconds before each response; WAIT is how long the execution takes, meanwhile or
    beyond. Without a decoupled transaction policy a request may ask for one response.
    """

    def check_config(self) -> None:
        """The model does not batch, and has those inputs and outputs."""
        check_tensors(
            self.source.config,
            inputs={"IN": INT32, "DELAY": UINT32, "WAIT": UINT32},
            outputs={"OUT": INT32, "IDX": UINT32},
        )

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance."""
        return RepeatInstance()


class RepeatInstance(Instance):
    """Sends the responses of each request from a thread of its own."""

    def execute(self, batch: Batch) -> None:
        """Start the responses, and wait as the requests say."""
        send = batch.send
        batch.inputs_ns = monotonic_ns()
        if send is None:
            batch.responses = [_only_response(request) for request in batch.requests]
            batch.outputs_ns = monotonic_ns()
            return
        for request in batch.requests:
            Thread(target=repeat, args=(request, send), name="repeat", daemon=True).start()
            sleep(int(request.inputs["WAIT"].array.reshape(-1)[0]) / 1000)
        batch.outputs_ns = monotonic_ns()


def repeat(request: InferRequest, send: Send) -> None:
    """Send the responses of one request, each after its delay."""
    values = request.inputs["IN"].array.reshape(-1)
    delays = request.inputs["DELAY"].array.reshape(-1)
    for index, (value, delay_ms) in enumerate(zip(values, delays.tolist(), strict=False)):
        sleep(delay_ms / 1000)
        if request.cancelled:
            send(request, InferResponse(error=CancelledError("the request was cancelled")), True)
            return
        send(request, _response(request, value, index), False)
    send(request, None, True)


def _only_response(request: InferRequest) -> InferResponse:
    """The response of a model that is not decoupled."""
    values = request.inputs["IN"].array.reshape(-1)
    if values.size > 1:
        text = (
            f"model '{request.model_name}' is not decoupled and cannot send more than one response, but IN has "
            f"{values.size} elements; set model_transaction_policy {{ decoupled: true }}"
        )
        return InferResponse(error=InvalidArgumentError(text))
    delays = request.inputs["DELAY"].array.reshape(-1)[: values.size]
    sleep(int(max(delays.sum(), request.inputs["WAIT"].array.reshape(-1)[0])) / 1000)
    return _response(request, values[0], 0) if values.size else InferResponse()


def _response(request: InferRequest, value: np.int32, index: int) -> InferResponse:
    outputs = {
        "OUT": Tensor.from_array(INT32, np.array([value], INT32.numpy)),
        "IDX": Tensor.from_array(UINT32, np.array([index], UINT32.numpy)),
    }
    wanted = request.outputs
    return InferResponse({name: each for name, each in outputs.items() if not wanted or name in wanted})
