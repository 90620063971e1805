"""A client's request on its way to a model, in every protocol: it is counted, and its tensors may lie in regions."""

from halimede.core.requests import InferRequest
from halimede.engine.inflight import InflightLimit
from halimede.frontends.shared_memory.registry import Regions
from halimede.frontends.shared_memory.requests import Places, use_regions


def admit(
    request: InferRequest, limit: InflightLimit | None, places: Places | None, regions: Regions
) -> None:
    """Count the request, and let it use the regions that it names: both, or neither if one of them refuses it.

    Args:
        request: the request.
        limit: counts requests in flight; None if there may be any number.
        places: where in regions its tensors are; None for nowhere.
        regions: the regions.

    Raises:
        HalimedeError: there are too many requests in flight, or a region does not exist or does not reach so far.
    """
    if limit is not None:
        limit.check(request)
    if places is not None:
        use_regions(request, places, regions)
    if limit is not None:
        limit.admit(request)
