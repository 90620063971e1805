"""Experiments in a test: their state is on disk, their endpoints are plain values, the test moves the clock."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.deployed import Deployed
from halimede.hosting.errors import ApiError
from halimede.hosting.experiments.checks import DAY
from halimede.hosting.experiments.experiments import Experiments
from halimede.hosting.identity import Caller, EndpointId

NOON = 1_790_000_000.0
CALLER = Caller()
ROLE = "arn:aws:iam::000000000000:role/x"


def moment(seconds: float) -> datetime:
    """A time, as a request has it; counted from noon."""
    return datetime.fromtimestamp(NOON + seconds, UTC)


def model_variant(name: str, model: str = "m", count: int = 1) -> dict[str, Any]:
    """A `ModelVariantConfig`."""
    infrastructure = {"InstanceType": "ml.local.cpu", "InstanceCount": count}
    return {
        "ModelName": model,
        "VariantName": name,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": infrastructure,
        },
    }


def shadow_mode(percentage: int = 50, source: str = "A", shadow: str = "B") -> dict[str, Any]:
    """A `ShadowModeConfig`."""
    variants = [{"ShadowModelVariantName": shadow, "SamplingPercentage": percentage}]
    return {"SourceModelVariantName": source, "ShadowModelVariants": variants}


def experiment(name: str = "x", **further: Any) -> dict[str, Any]:
    """`CreateInferenceExperiment` of variant B as the shadow of A on the endpoint e."""
    return {
        "Name": name,
        "Type": "ShadowMode",
        "RoleArn": ROLE,
        "EndpointName": "e",
        "ModelVariants": [model_variant("A"), model_variant("B", "n")],
        "ShadowModeConfig": shadow_mode(),
        **further,
    }


@dataclass
class FakeEndpoint:
    """An endpoint whose changes end when the test says so."""

    config_name: str
    status: str = "InService"
    reason: str = ""
    pending: str = ""


@dataclass
class FakeEndpoints:
    """Endpoints and configurations (`Endpoints`).

    Attributes:
        configs: configurations, by name.
        endpoints: by name.
        deploys: what has been asked for.
        refusal: what the next deploy is refused with.
        models: those that there are.
    """

    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    endpoints: dict[str, FakeEndpoint] = field(default_factory=dict)
    deploys: list[str] = field(default_factory=list)
    refusal: ApiError | None = None
    models: set[str] = field(default_factory=lambda: {"m", "n"})

    def deployed(self, endpoint: EndpointId) -> Deployed | None:
        found = self.endpoints.get(endpoint.name)
        if found is None or endpoint.scope != CALLER.scope:
            return None
        return Deployed(found.status, found.config_name, self.configs[found.config_name], found.reason)

    async def make_config(self, request: Mapping[str, Any], caller: Caller) -> None:
        await asyncio.sleep(0)
        assert caller.scope == CALLER.scope
        assert request["EndpointConfigName"] not in self.configs
        for variant in (*request["ProductionVariants"], *request.get("ShadowProductionVariants", ())):
            if variant["ModelName"] not in self.models:
                raise ApiError("ValidationException", f'Could not find model "{variant["ModelName"]}".')
        self.configs[request["EndpointConfigName"]] = request

    async def deploy(self, endpoint: EndpointId, config_name: str) -> None:
        await asyncio.sleep(0)
        found = self.endpoints[endpoint.name]
        if self.refusal is not None:
            raise self.refusal
        if found.status != "InService":
            raise ApiError("ValidationException", "Cannot update in-progress endpoint")
        self.deploys.append(config_name)
        found.status, found.pending, found.reason = "Updating", config_name, ""

    # what the test does

    @property
    def e(self) -> FakeEndpoint:
        """The endpoint e."""
        return self.endpoints["e"]

    def settle(self, failure: str = "") -> None:
        """What the endpoint e is being changed to comes about, or not."""
        found = self.e
        if found.status == "Updating":
            found.status, found.reason = "InService", failure
            if not failure:
                found.config_name = found.pending


class World:
    """Experiments and their endpoint. `async with` starts and stops them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOON
        self.endpoints = FakeEndpoints()
        production = {
            "VariantName": "A",
            "ModelName": "m",
            "InstanceType": "ml.local.cpu",
            "InitialInstanceCount": 1,
            "RoutingConfig": {"RoutingStrategy": "RANDOM"},
        }
        self.endpoints.configs["c"] = {"EndpointConfigName": "c", "ProductionVariants": [production]}
        self.endpoints.endpoints["e"] = FakeEndpoint("c")
        self.experiments: Experiments

    async def __aenter__(self) -> "World":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.experiments.stop()

    async def start(self) -> None:
        self.experiments = Experiments(self.directory / "experiments.db", self.endpoints, lambda: self.now)
        await self.experiments.open()

    async def restart(self) -> None:
        """Another host takes over."""
        await self.experiments.stop()
        await self.start()

    async def call(self, operation: str, caller: Caller = CALLER, **request: Any) -> Mapping[str, Any]:
        return await self.experiments.operations()[operation](request, caller)

    async def create(self, **further: Any) -> None:
        """Have the experiment x."""
        await self.call("CreateInferenceExperiment", **experiment(**further))

    async def run(self, **further: Any) -> None:
        """Have the experiment x running."""
        await self.create(**further)
        await self.tick(3)
        self.endpoints.settle()
        await self.tick()
        assert await self.status() == "Running"

    async def tick(self, count: int = 1, seconds: float = 1.0) -> None:
        """Let time go by."""
        for _ in range(count):
            self.now += seconds
            await self.experiments.tick()

    async def describe(self, name: str = "x") -> Mapping[str, Any]:
        return await self.call("DescribeInferenceExperiment", Name=name)

    async def status(self, name: str = "x") -> str:
        status: str = (await self.describe(name))["Status"]
        return status

    async def variants(self) -> dict[str, str]:
        """Variant → its status."""
        return {each["VariantName"]: each["Status"] for each in (await self.describe())["ModelVariants"]}

    async def refused(self, operation: str, code: str = "ValidationException", **request: Any) -> str:
        """The text with which an operation is refused."""
        with pytest.raises(ApiError) as raised:
            await self.call(operation, **request)
        assert raised.value.code == code
        return raised.value.message


WEEK = 7 * DAY
