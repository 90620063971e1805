"""Backend `square`: a decoupled model that answers a number as many times as it says. For tests."""

from time import monotonic_ns

import numpy as np

from halimede.backends.base import BackendModel, Instance, InstanceSpec
from halimede.backends.batch import Batch
from halimede.backends.decoupled import check_decoupled
from halimede.core.datatypes import INT32
from halimede.core.errors import CancelledError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor


class SquareModel(BackendModel):
    """IN (INT32[1]) of value v → v responses OUT (INT32[1]) of value v; none for 0 and below."""

    def check_config(self) -> None:
        """The model is decoupled, does not batch, and has that input and output."""
        check_decoupled(self.source.config, inputs={"IN": INT32}, outputs={"OUT": INT32})

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance."""
        return SquareInstance()


class SquareInstance(Instance):
    """Sends the responses while it executes."""

    def execute(self, batch: Batch) -> None:
        """Send every response of every request."""
        send = batch.send
        assert send is not None
        batch.inputs_ns = monotonic_ns()
        for request in batch.requests:
            value = int(request.inputs["IN"].array.reshape(-1)[0])
            for _ in range(value):
                if request.cancelled:
                    send(request, InferResponse(error=CancelledError("the request was cancelled")), True)
                    break
                tensor = Tensor.from_array(INT32, np.array([value], INT32.numpy))
                send(request, InferResponse({"OUT": tensor}), False)
            else:
                send(request, None, True)
        batch.outputs_ns = monotonic_ns()
