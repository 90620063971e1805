"""Which instances of a multi-model endpoint hold which models, as one document.

    {"endpoint": its name,
     "variants": [{"variant", "config": the endpoint configuration of its fleet,
                   "known": models that instances have something of, "matching": those whose names contain the text,
                   "instances": [{"id", "loaded": models, "used_bytes", "budget_bytes": of memory for models}],
                   "models": [MODEL, ...]}]}

A MODEL is {"model": as TargetModel names it, "copies": [{"instance", "state", "memory_bytes", "disk_bytes",
"in_flight", "waiting": requests for it, "unused_s": since it was last asked for, null for never, "failure"}]}; the 200
that were used last are told, the latest first.
"""

import heapq
from collections.abc import Iterator, Sequence
from time import monotonic_ns
from typing import Any, Final

from halimede.hosting.console.visitor import Visitor
from halimede.hosting.errors import ApiError
from halimede.hosting.routing.residency.entry import Entry
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.table import RoutingTable, VariantRoute

Document = dict[str, Any]

_TOLD: Final = 200


class ResidentModels:
    """The models of the endpoint that a visitor asks for.

    Args:
        table: where the endpoint's instances are.
        visitor: who asks; the parameter `text` is what names of models have to contain.

    Raises:
        ApiError: they name no endpoint, or may not see it.
    """

    def __init__(self, table: RoutingTable, visitor: Visitor) -> None:
        self._table = table
        self._scope = visitor.caller.scope
        self._endpoint = visitor.endpoint
        self._text = visitor.parameter("text").lower()
        visitor.check("sagemaker:DescribeEndpoint", self._endpoint)

    async def take(self) -> Document:
        """The document as of now.

        Raises:
            ApiError: no such endpoint takes requests.
        """
        route = self._table.find(*self._scope, self._endpoint)
        if route is None:
            raise ApiError("ResourceNotFound", f"no endpoint '{self._endpoint}' takes requests", 404)
        now = monotonic_ns()
        variants = [
            self._variant(variant, variant.residency, now)
            for variant in route.every_variant()
            if isinstance(variant.residency, MultiModelResidency)
        ]
        return {"endpoint": self._endpoint, "variants": variants}

    def _variant(self, variant: VariantRoute, residency: MultiModelResidency, now: int) -> Document:
        copies = residency.copies()
        text = self._text
        found = [each for each in copies.items() if not text or text in each[0].lower()]
        latest = heapq.nlargest(_TOLD, found, key=_last_used)
        return {
            "variant": variant.spec.name,
            "config": variant.config,
            "known": len(copies),
            "matching": len(found),
            "instances": [
                {"id": name, "loaded": loaded, "used_bytes": used, "budget_bytes": budget}
                for name, loaded, used, budget in residency.memory()
            ],
            "models": [{"model": name, "copies": list(_copies(entries, now))} for name, entries in latest],
        }


def _last_used(model: tuple[str, Sequence[Entry]]) -> int:
    """When a model was last asked for, in nanoseconds. There may be tens of thousands."""
    entries = model[1]
    return entries[0].used_ns if len(entries) == 1 else max((each.used_ns for each in entries), default=0)


def _copies(entries: Sequence[Entry], now: int) -> Iterator[Document]:
    for entry in entries:
        yield {
            "instance": entry.target.id,
            "state": entry.state.name,
            "memory_bytes": entry.memory_bytes,
            "disk_bytes": entry.disk_bytes,
            "in_flight": entry.pins,
            "waiting": entry.waiting,
            "unused_s": (now - entry.used_ns) / 1e9 if entry.used_ns else None,
            "failure": "" if entry.failure is None else entry.failure.message,
        }
