"""The Python model that stands for a function: the `TritonPythonModel` of the file that `repository.py` writes.

It runs wherever Python models run, in a worker process or in the server's.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from opcode import opmap
from typing import Any, Final

import numpy as np

from halimede.functions.callables import module_of, qualified_name
from halimede.functions.conversion import ResultError, argument, outputs
from halimede.functions.declaration import ModelOptions, options_of
from halimede.functions.places import Place, find_function
from halimede.functions.signature import FunctionSignature, read_signature

logger = logging.getLogger("halimede.functions")

_RAISE: Final = opmap["RAISE_VARARGS"]
"""What a statement `raise` is compiled to."""


def hosted(triton: Any, place: Place) -> type:
    """The class `TritonPythonModel` for a function.

    Args:
        triton: the module `triton_python_backend_utils` of the instance.
        place: where the function is.
    """
    target = find_function(place)
    options = options_of(target)
    signature = read_signature(target, options)
    base: type[_Model]
    if signature.streams:
        base = _AsyncStreamModel if signature.asynchronous else _StreamModel
    elif options.batch:
        base = _AsyncBatchModel if signature.asynchronous else _BatchModel
    else:
        base = _AsyncCallModel if signature.asynchronous else _CallModel
    members = {
        "triton": triton, "target": staticmethod(target), "options": options, "signature": signature
    }  # fmt: skip
    return type("TritonPythonModel", (base,), members)


class _Model:
    """What all have in common.

    Attributes:
        triton: the module `triton_python_backend_utils`.
        target: the function or class.
        options: how it is served.
        signature: what it takes and gives.
        function: what is called: the function, or an object of the class.
    """

    triton: Any
    target: Callable[..., Any]
    options: ModelOptions
    signature: FunctionSignature
    function: Callable[..., Any]

    def initialize(self, arguments: Mapping[str, str]) -> None:
        """Make the object, if it is a class."""
        self.function = self.target() if self.signature.is_class else self.target

    def finalize(self) -> None:
        """Let the object of a class close what it has opened."""
        close = getattr(self.function, "close", None) if self.signature.is_class else None
        if close is not None:
            close()

    def arguments(self, request: Any) -> dict[str, Any]:
        """Parameter → value, of one request."""
        given = {}
        for value in self.signature.inputs:
            tensor = self.triton.get_input_tensor_by_name(request, value.name)
            if tensor is not None:
                given[value.name] = argument(value, tensor.as_numpy())
        return given

    def batch_arguments(self, requests: Sequence[Any]) -> tuple[dict[str, Any], list[int]]:
        """Parameter → value, of all requests together, and the rows of each request."""
        given, rows = {}, [0]
        for value in self.signature.inputs:
            arrays = [self.triton.get_input_tensor_by_name(each, value.name).as_numpy() for each in requests]
            rows = [len(each) for each in arrays]
            given[value.name] = argument(value, arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
        return given, rows

    def is_repeated(self, requests: Sequence[Any]) -> bool:
        """Whether the function is called for each request by itself, now that a call for all of them has failed."""
        return len(requests) > 1 and self.options.repeat_failed

    def response(self, result: Any) -> Any:
        """The response with what the function gave."""
        return self._response(outputs(self.signature, result))

    def responses(self, result: Any, rows: Sequence[int]) -> list[Any]:
        """The responses with what the function gave for a batch."""
        arrays = outputs(self.signature, result, sum(rows))
        answers, start = [], 0
        for count in rows:
            answers.append(self._response([each[start : start + count] for each in arrays]))
            start += count
        return answers

    def _response(self, arrays: Sequence[Any]) -> Any:
        named = zip(self.signature.outputs, arrays, strict=True)
        return self.triton.InferenceResponse([self.triton.Tensor(value.name, each) for value, each in named])

    def failures(self, error: Exception, requests: Sequence[Any]) -> list[Any]:
        """The responses to requests of a call that failed: whose mistake it was is not known if they are several."""
        return [self.failure(error, is_shared=len(requests) > 1)] * len(requests)

    def failure(self, error: Exception, *, is_shared: bool = False) -> Any:
        """The response with an error: the caller's if it is a ValueError of the function, else the function's."""
        told, code = str(error), self.triton.TritonError.INTERNAL
        if isinstance(error, ValueError) and self._is_raised_here(error) and not is_shared:
            code = self.triton.TritonError.INVALID_ARG
        elif not isinstance(error, ResultError):
            told = f"{type(error).__name__}: {error}"
            logger.error("%s failed", qualified_name(self.target), exc_info=error)
        return self.triton.InferenceResponse(error=self.triton.TritonError(told, code))

    def _is_raised_here(self, error: Exception) -> bool:
        """Whether the function's package or ours raises the exception, rather than a library that it calls.

        Libraries in C have no frames: their exceptions seem to come from the line that calls them, without a `raise`.
        """
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is None or trace.tb_frame.f_code.co_code[trace.tb_lasti] != _RAISE:
            return False
        module = trace.tb_frame.f_globals.get("__name__", "")
        return _package(module) in (_package(module_of(self.target)), _package(__name__))


def _package(module: str) -> str:
    return module.partition(".")[0]


class _CallModel(_Model):
    """A function that is called once for each request."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [self._call(request) for request in requests]

    def _call(self, request: Any) -> Any:
        try:
            return self.response(self.function(**self.arguments(request)))
        except Exception as error:
            return self.failure(error)


class _AsyncCallModel(_Model):
    """A coroutine function that is called once for each request."""

    async def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [await self._call(request) for request in requests]

    async def _call(self, request: Any) -> Any:
        try:
            return self.response(await self.function(**self.arguments(request)))
        except Exception as error:
            return self.failure(error)


class _BatchModel(_Model):
    """A function that is called once for each batch."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        try:
            arguments, rows = self.batch_arguments(requests)
            return self.responses(self.function(**arguments), rows)
        except Exception as error:
            if self.is_repeated(requests):
                return [each for request in requests for each in self.execute([request])]
            return self.failures(error, requests)


class _AsyncBatchModel(_Model):
    """A coroutine function that is called once for each batch."""

    async def execute(self, requests: Sequence[Any]) -> list[Any]:
        try:
            arguments, rows = self.batch_arguments(requests)
            return self.responses(await self.function(**arguments), rows)
        except Exception as error:
            if self.is_repeated(requests):
                return [each for request in requests for each in await self.execute([request])]
            return self.failures(error, requests)


class _StreamModel(_Model):
    """A generator: each value that it yields is a response."""

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                for result in self.function(**self.arguments(request)):
                    if request.is_cancelled():
                        break
                    sender.send(self.response(result))
            except Exception as error:
                sender.send(self.failure(error))
            sender.send(flags=self.triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class _AsyncStreamModel(_Model):
    """An asynchronous generator: each value that it yields is a response."""

    async def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                async for result in self.function(**self.arguments(request)):
                    if request.is_cancelled():
                        break
                    sender.send(self.response(result))
            except Exception as error:
                sender.send(self.failure(error))
            sender.send(flags=self.triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
