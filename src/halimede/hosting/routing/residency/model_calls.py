"""What an instance is asked to do with models: load one, unload one."""

from typing import NamedTuple, Protocol

import orjson

from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.http1.client import call
from halimede.http1.upstream import UpstreamPool

_TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


class ModelAnswer(NamedTuple):
    """What an instance answers.

    Attributes:
        status: of HTTP.
        text: the body, which says what is wrong if something is.
    """

    status: int
    text: str


class ModelCalls(Protocol):
    """Loads and unloads the models of one instance. Called on the event loop."""

    async def load(self, model: str, name: str) -> ModelAnswer:
        """Have a model loaded whose files are there; 409 if it is, 507 if there is no memory for it.

        Args:
            model: its path below the variant's prefix.
            name: what the instance calls it.

        Raises:
            CallError: there is no answer.
        """

    async def unload(self, model: str, name: str) -> ModelAnswer:
        """Have a model unloaded; 404 if it is not there.

        Raises:
            CallError: there is no answer.
        """


class HttpModelCalls:
    """Models are loaded with ``POST /models`` and unloaded with ``DELETE /models/NAME`` (`ModelCalls`)."""

    def __init__(self, pool: UpstreamPool, seen_models: str, settings: ResidencySettings) -> None:
        """The calls to an instance that sees its models' files in the directory `seen_models`."""
        self._pool = pool
        self._seen_models = seen_models
        self._settings = settings

    async def load(self, model: str, name: str) -> ModelAnswer:
        """Have a model loaded whose files are there."""
        headers = {_TARGET_MODEL: model, "Content-Type": "application/json"}
        body = orjson.dumps({"model_name": name, "url": f"{self._seen_models}/{name}/model"})
        return await self._call("POST", "/models", body, headers, self._settings.load_timeout_s)

    async def unload(self, model: str, name: str) -> ModelAnswer:
        """Have a model unloaded."""
        headers = {_TARGET_MODEL: model}
        return await self._call("DELETE", f"/models/{name}", b"", headers, self._settings.unload_timeout_s)

    async def _call(
        self, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> ModelAnswer:
        status, text = await call(self._pool, method, path, body, headers, timeout_s)
        return ModelAnswer(status, text.decode(errors="replace"))
