"""A client's request is counted and uses its regions, or neither."""

import pytest

from halimede.core.errors import HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.inflight import InflightLimit
from halimede.frontends.admission import admit
from halimede.frontends.shared_memory.registry import Place, Regions
from halimede.frontends.shared_memory.requests import Places
from tests.frontends.shared_memory.support import Memory


def request() -> InferRequest:
    return InferRequest("m", {}, lambda *_: None)


def test_one_too_many_leaves_its_region_free() -> None:
    regions, limit, memory = Regions(allowed=True), InflightLimit(1), Memory(64)
    try:
        regions.system.register("r", memory.key, 0, 64)
        places = Places(outputs={"OUT": Place("r", 0, 64)})
        first, second = request(), request()
        admit(first, limit, places, regions)
        with pytest.raises(UnavailableError):
            admit(second, limit, places, regions)
        first.respond(InferResponse(), True)
        regions.system.unregister()
        assert (limit.count, list(regions.system.status())) == (0, [])
    finally:
        memory.close()


def test_one_whose_region_is_missing_is_not_counted() -> None:
    limit = InflightLimit(1)
    with pytest.raises(HalimedeError, match="Unable to find shared memory region: 'r'"):
        admit(request(), limit, Places(outputs={"OUT": Place("r", 0, 64)}), Regions(allowed=True))
    assert limit.count == 0
