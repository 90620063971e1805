"""Models and ensembles with the cache in front of them."""

from halimede.core.clock import LoopClock
from halimede.engine.cache.access import CacheAccess
from halimede.engine.cache.local import LocalCache
from halimede.engine.lifecycle.loading import load_version
from halimede.engine.model import Model
from halimede.engine.settings import EngineSettings
from tests.engine.test_model import NO_WORKERS, Served, source
from tests.support.loops import LoopThread


class Cached(Served):
    """A model with a cache, on a loop in a thread, and what it answered."""

    def __init__(self, loop: LoopThread, text: str) -> None:
        self.loop = loop
        self.loaded = load_version(source(text), EngineSettings((), cpu_threads=1, gpus=()), NO_WORKERS)
        self.clock = loop.call(LoopClock, loop.loop)
        self.cache = LocalCache(1 << 20, self.clock)
        access = CacheAccess(self.cache, bytes(32))
        self.model: Model = loop.call(Model, self.loaded, self.clock, loop.loop, None, access)
        self.begin()
