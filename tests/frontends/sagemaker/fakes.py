"""An engine with hosted models that tests hold in their hands."""

import asyncio
from types import SimpleNamespace
from typing import Any

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, NotFoundError, NotLoadedError
from halimede.engine.lifecycle.hosted_models import HostedModel
from tests.frontends.grpc.service_fakes import FakeEngine, FakeModel


def fake_model(name: str, *steps: str, **more: Any) -> Any:
    """A model, or the ensemble of those steps."""
    model: Any = FakeModel(name, **more)
    model.config = ModelConfig(name=name)
    for step in steps:
        model.config.ensemble_scheduling.step.add(model_name=step)
    return model


class FakeHosted:
    """Hosted models.

    Attributes:
        loads: what was to be loaded.
        unloads: what was to be unloaded.
        error: what the next loads and unloads raise.
        gate: loads and unloads wait for it.
    """

    def __init__(self, *models: HostedModel) -> None:
        self.models = {model.key: model for model in models}
        self.loads: list[tuple[str, str, str]] = []
        self.unloads: list[str] = []
        self.error: HalimedeError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def get(self, key: str) -> HostedModel:
        if key not in self.models:
            raise NotFoundError(f"no model is loaded under the name '{key}'")
        return self.models[key]

    def list(self) -> list[HostedModel]:
        return list(self.models.values())

    async def load(self, key: str, url: str, alias: str = "") -> HostedModel:
        self.loads.append((key, url, alias))
        await self._wait()
        self.models[key] = HostedModel(key, url, alias, alias or key)
        return self.models[key]

    async def unload(self, key: str) -> None:
        self.unloads.append(key)
        self.get(key)
        await self._wait()
        del self.models[key]

    async def _wait(self) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error


class HostingEngine(FakeEngine):
    """Serves the models that it is made with.

    Attributes:
        missing: models that are there once they are demanded, or the error if they cannot be.
        demands: what was demanded.
    """

    def __init__(self, *models: Any, hosted: FakeHosted | None = None) -> None:
        super().__init__(*models)
        self.models = list(models)
        self.hosted = hosted or FakeHosted()
        self.missing: dict[str, Any] = {}
        self.demands: list[tuple[str, int, float]] = []
        self.demanded = asyncio.Event()
        self.demanded.set()
        self.lifecycle = SimpleNamespace(
            on_readiness=[],
            live=True,
            ready=True,
            leaving=False,
            stopping=False,
            loaded_models=lambda: self.models,
            versions=self._versions,
        )

    def _versions(self, name: str) -> list[int]:
        if name not in {*self._models, "known"}:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return []

    def find(self, name: str, version: int = -1) -> Any:
        if name in self.missing:
            raise NotLoadedError(name, version)
        return super().find(name, version)

    async def demand(self, name: str, version: int, timeout_s: float) -> None:
        self.demands.append((name, version, timeout_s))
        await self.demanded.wait()
        outcome = self.missing[name]
        if isinstance(outcome, HalimedeError):
            raise outcome
        del self.missing[name]
        self._models[name] = outcome
