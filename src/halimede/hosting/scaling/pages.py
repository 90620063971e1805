"""What Describe operations have in common: which of all are meant, and which page of those."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from halimede.hosting.errors import invalid
from halimede.hosting.paging import begin_of
from halimede.hosting.scaling.names import DIMENSION, NAMESPACE, VariantId

Entry = TypeVar("Entry")
Request = Mapping[str, Any]

BAD_TOKEN = "InvalidNextTokenException"  # noqa: S105 - an error's code
_MAX_PAGE = 50


def resources_of(request: Request) -> Collection[str] | None:
    """The resources that a request is about; None for all, an empty one for those of services that are not here.

    Raises:
        ApiError: it says a dimension and no resource.
    """
    member = "ResourceIds" if "ResourceIds" in request else "ResourceId"
    found = request.get(member, ())
    resources = [found] if isinstance(found, str) else found
    dimension = request.get("ScalableDimension", DIMENSION)
    if "ScalableDimension" in request and not resources:
        raise invalid("If you specify a scalable dimension, you must also specify a resource ID")
    if request["ServiceNamespace"] != NAMESPACE or dimension != DIMENSION:
        return ()
    return resources or None


def is_meant(variant: VariantId, resources: Collection[str] | None) -> bool:
    """Whether a variant is one of some resources."""
    return resources is None or variant.resource in resources


def page_size(request: Request, most: int = _MAX_PAGE) -> int:
    """How many entries a request wants.

    Raises:
        ApiError: too few or too many.
    """
    size: int = request.get("MaxResults", most)
    if not 1 <= size <= most:
        raise invalid(f"MaxResults is {size}; it must be from 1 to {most}")
    return size


def page_of(
    request: Request, entries: Sequence[Mapping[str, Any]], member: str, most: int = _MAX_PAGE
) -> dict[str, Any]:
    """The page of an answer that a request asks for.

    Args:
        request: it.
        entries: all of them.
        member: of the answer, that holds them.
        most: so many may be on a page.

    Raises:
        ApiError: there is no such page.
    """
    begin, size = begin_of(request.get("NextToken"), BAD_TOKEN), page_size(request, most)
    answer: dict[str, Any] = {member: entries[begin : begin + size]}
    if begin + size < len(entries):
        answer["NextToken"] = str(begin + size)
    return answer
