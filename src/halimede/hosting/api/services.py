"""Services: the operations that the host has of each, and how requests and answers of AWS's models look."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from botocore.model import ServiceModel

from halimede.hosting.access.references import References, references_of
from halimede.hosting.api.service_models import service_model
from halimede.hosting.api.shapes import Checker
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller

Operation = Callable[[Mapping[str, Any], Caller], Awaitable[Mapping[str, Any]]]
"""Answers a request that has been checked; times are `datetime`, names are those of the service's model."""

_MAX_SHOWN = 128


About = Callable[[str, Mapping[str, Any], Caller], Collection[str]]
"""The endpoints that a request is about without naming them, given its operation's name."""


def names_nothing(_: str, __: Mapping[str, Any], ___: Caller) -> Collection[str]:
    """Requests of a service are about the endpoints that they name."""
    return ()


@dataclass(eq=False)
class Service:
    """One of AWS's services.

    Attributes:
        name: as botocore calls it, such as ``sagemaker``.
        operations: those that the host has, by name.
        later: what is said of an operation that it does not have.
        further: enumeration's shape name → values that it has here beside its own.
        refusal: the code of the error for a request that breaks the service's model.
        denial: the code of the error for a request that names something of another account.
        about: the endpoints that a request is about without naming them.
    """

    name: str
    operations: Mapping[str, Operation]
    later: str = ""
    further: Mapping[str, Collection[str]] = field(default_factory=dict)
    refusal: str = "ValidationException"
    denial: str = "AccessDeniedException"
    about: About = names_nothing

    @cached_property
    def model(self) -> ServiceModel:
        """The service's model, with the shapes of these operations."""
        return service_model(self.name, frozenset(self.operations))

    @cached_property
    def checker(self) -> Checker:
        """Holds requests against the service's model."""
        return Checker(self.further, self.refusal)

    def check(self, name: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request of an operation, held against the service's model.

        Raises:
            ApiError: the host does not have the operation, or the request breaks the model.
        """
        if name not in self.operations:
            raise self._unavailable(name)
        shape = self.model.operation_model(name).input_shape
        return self.checker.check(shape, document) if shape is not None else {}

    def references(self, name: str, document: Mapping[str, Any]) -> References:
        """What the request of an operation names, which `check` gave."""
        return references_of(self.model.operation_model(name).input_shape, document)

    def _unavailable(self, name: str) -> ApiError:
        if name in self.model.operation_names:
            why = "is not available in this version"
        else:
            why = f"is no operation of {self.name}"
        there = f". Available are {', '.join(sorted(self.operations))}" if self.operations else ""
        later = f": {self.later}" if self.later else ""
        return ApiError("UnknownOperationException", f"{name[:_MAX_SHOWN]} {why}{later}{there}")

    async def run(self, name: str, document: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        """Run an operation with a request that `check` gave.

        Raises:
            ApiError: it is refused.
        """
        return await self.operations[name](document, caller)
