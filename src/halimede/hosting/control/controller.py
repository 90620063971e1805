"""SageMaker's control plane: the operations on models, endpoint configurations, endpoints and tags."""

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.capacity import VariantCapacity
from halimede.hosting.control.checks import (
    check_asynchronous_model,
    check_config,
    check_desired_capacity,
    check_kind,
    check_model,
    check_shadowed_model,
)
from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.control.defaults import complete_config, complete_model
from halimede.hosting.control.deployments.plan import Plan
from halimede.hosting.control.deployments.policy import Policy
from halimede.hosting.control.deployments.progress import Progress
from halimede.hosting.control.descriptions import describe_endpoint, endpoint_summary
from halimede.hosting.control.endpoint import Endpoint
from halimede.hosting.control.guests import Guest
from halimede.hosting.control.listing import page_of
from halimede.hosting.control.records import EndpointRecord, FleetRecord, Status, variants_of
from halimede.hosting.control.resources import Resources, is_taken, tags_of
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.control.updates import check_update, deployment_of, retain
from halimede.hosting.deployed import Deployed
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.substrates.base import RunningInstance

logger = logging.getLogger("halimede")

_ENDPOINT = "endpoint"
_MAX_TAGS = 50

Request = Mapping[str, Any]
Answer = dict[str, Any]


class Controller:
    """The control plane. Lives on the event loop."""

    def __init__(self, dependencies: Dependencies, database: Path) -> None:
        """A control plane that keeps its state in the file `database`."""
        self._dependencies = dependencies
        self._database = Database(database)
        self._models = Resources(self._database, "model", "model", "ModelName", "ModelArn", complete_model)
        self._configs = Resources(
            self._database,
            "endpoint-config",
            "endpoint configuration",
            "EndpointConfigName",
            "EndpointConfigArn",
            complete_config,
        )
        self._endpoints: dict[EndpointId, Endpoint] = {}
        self._adopted: dict[str, RunningInstance] = {}
        self._guests: list[Guest] = []
        self._hold_s = dependencies.settings.describe_hold_s

    def attach(self, guest: Guest) -> None:
        """Let a guest have fleets on the same substrate; before `start`."""
        self._guests.append(guest)

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        models, configs = self._models, self._configs
        return {
            "CreateModel": self._create_model,
            "DescribeModel": models.describe,
            "DeleteModel": models.delete,
            "ListModels": lambda request, caller: models.list(request, caller, "Models"),
            "CreateEndpointConfig": self._create_config,
            "DescribeEndpointConfig": configs.describe,
            "DeleteEndpointConfig": configs.delete,
            "ListEndpointConfigs": lambda request, caller: configs.list(request, caller, "EndpointConfigs"),
            "CreateEndpoint": self._create_endpoint,
            "DescribeEndpoint": self._describe_endpoint,
            "ListEndpoints": self._list_endpoints,
            "UpdateEndpoint": self._update_endpoint,
            "UpdateEndpointWeightsAndCapacities": self._update_weights,
            "DeleteEndpoint": self._delete_endpoint,
            "AddTags": self._add_tags,
            "ListTags": self._list_tags,
            "DeleteTags": self._delete_tags,
        }

    # coming and going

    async def start(self) -> None:
        """Read what is there, and go on with it: instances that still run are taken over, others are started again.

        Raises:
            DatabaseError: the state cannot be read.
        """
        await self._database.open()
        await self._models.open()
        await self._configs.open()
        documents = await self._database.documents(_ENDPOINT)
        records = [EndpointRecord.from_document(document) for document in documents.values()]
        fleets = {
            fleet.id for record in records if record.status is not Status.FAILED for fleet in record.fleets
        }
        fleets.update(fleet for guest in self._guests for fleet in guest.fleets())
        substrate, grace = self._dependencies.substrate, self._dependencies.settings.grace_s
        running = await substrate.start(self._ended)
        self._adopted = {each.request.id: each for each in running if each.request.fleet in fleets}
        strangers = [each.request.id for each in running if each.request.id not in self._adopted]
        await asyncio.gather(*(substrate.terminate(each, grace) for each in strangers))
        await asyncio.to_thread(_remove_others, self._dependencies.directory, fleets)
        for guest in self._guests:
            guest.adopt(self._adopted)
        for record in records:
            if record.status in (Status.IN_SERVICE, Status.UPDATE_ROLLBACK_FAILED):
                record.status = Status.SYSTEM_UPDATING
            endpoint = Endpoint(self._dependencies, record, self._keep, self._gone, self._adopted)
            self._endpoints[record.id] = endpoint
            endpoint.work()

    def release(self) -> None:
        """Give the answers that are held until an endpoint is settled, and hold none from now on."""
        self._hold_s = 0.0
        for endpoint in self._endpoints.values():
            endpoint.release()

    async def stop(self, *, leave: bool) -> None:
        """Do nothing more; `leave` lets the instances run on, for the next process of the host to take over."""
        await asyncio.gather(*(endpoint.stop() for endpoint in self._endpoints.values()))
        await self._dependencies.substrate.stop(leave=leave)
        await self._database.close()

    def _ended(self, instance_id: str, reason: str) -> None:
        """An instance has ended by itself."""
        logger.warning("instance %s ended: %s", instance_id, reason)
        self._adopted.pop(instance_id, None)
        for endpoint in self._endpoints.values():
            if endpoint.ended(instance_id, reason):
                return
        for guest in self._guests:
            if guest.ended(instance_id, reason):
                return

    async def _keep(self, record: EndpointRecord) -> None:
        await self._database.put(_key(record.id), record.document())

    async def _gone(self, endpoint: Endpoint) -> None:
        record = endpoint.record
        await self._database.remove(_key(record.id), record.arn)
        if self._endpoints.get(record.id) is endpoint:
            del self._endpoints[record.id]
            self._dependencies.forget_meters(record.id)

    # models and configurations

    def model(self, name: str, caller: Caller) -> Answer:
        """The request that made a model.

        Raises:
            ApiError: there is none of that name.
        """
        return self._models.find(name, caller)

    async def _create_model(self, request: Request, caller: Caller) -> Answer:
        check_model(request)
        return await self._models.create(request, caller)

    async def _create_config(self, request: Request, caller: Caller) -> Answer:
        check_config(request)
        for variant in variants_of(request):
            model = self._models.find(variant["ModelName"], caller)
            if request.get("ShadowProductionVariants"):
                check_shadowed_model(variant, model)
            if request.get("AsyncInferenceConfig"):
                check_asynchronous_model(variant["ModelName"], model)
            self._dependencies.resources(variant["InstanceType"])
        return await self._configs.create(request, caller)

    # endpoints

    def _endpoint(self, name: str, caller: Caller) -> Endpoint:
        endpoint = self._endpoints.get(EndpointId(*caller.scope, name))
        if endpoint is None:
            raise invalid(f'Could not find endpoint "{caller.scope.arn(_ENDPOINT, name)}".')
        return endpoint

    def _records(self, caller: Caller) -> list[EndpointRecord]:
        """The caller's endpoints."""
        scope = caller.scope
        return [each.record for each in self._endpoints.values() if each.record.id.scope == scope]

    def _changeable(self, name: str, caller: Caller) -> Endpoint:
        """The endpoint, if it is in service.

        Raises:
            ApiError: it is not.
        """
        endpoint = self._endpoint(name, caller)
        _check_changeable(endpoint.record)
        return endpoint

    def _fleet(self, config_name: str, caller: Caller) -> FleetRecord:
        """A fleet as the configuration says now."""
        config = self._configs.find(config_name, caller)
        names = {variant["ModelName"] for variant in variants_of(config)}
        models = {name: self._models.find(name, caller) for name in names}
        return FleetRecord.of(f"f-{secrets.token_hex(8)}", config_name, config, models)

    async def _create_endpoint(self, request: Request, caller: Caller) -> Answer:
        name = request["EndpointName"]
        arn = caller.scope.arn(_ENDPOINT, name)
        if is_taken(name, (record.name for record in self._records(caller))):
            raise invalid(f'Cannot create already existing endpoint "{arn}".')
        deployment, tags = deployment_of(request), tags_of(request)
        fleet = self._fleet(request["EndpointConfigName"], caller)
        now = time.time()
        record = EndpointRecord(
            name,
            arn,
            caller.account,
            caller.region,
            Status.CREATING,
            now,
            now,
            pending=fleet,
            deployment=deployment,
        )
        endpoint = Endpoint(self._dependencies, record, self._keep, self._gone)
        self._endpoints[record.id] = endpoint
        try:
            await self._database.add(_key(record.id), record.document(), arn, tags)
        except ApiError:
            del self._endpoints[record.id]
            raise
        endpoint.work()
        return {"EndpointArn": arn}

    async def _describe_endpoint(self, request: Request, caller: Caller) -> Answer:
        endpoint = self._endpoint(request["EndpointName"], caller)
        if self._hold_s and not endpoint.is_settled:
            await endpoint.settled(self._hold_s)
            endpoint = self._endpoint(request["EndpointName"], caller)
        return describe_endpoint(
            endpoint.record, endpoint.fleets, is_capture_stopped=self._dependencies.is_capture_stopped()
        )

    def describe_all(self, caller: Caller) -> list[Answer]:
        """What DescribeEndpoint says of each of the caller's endpoints, by name."""
        is_stopped = self._dependencies.is_capture_stopped()
        endpoints = [each for each in self._endpoints.values() if each.record.id.scope == caller.scope]
        return [
            describe_endpoint(each.record, each.fleets, is_capture_stopped=is_stopped)
            for each in sorted(endpoints, key=lambda endpoint: endpoint.record.name)
        ]

    def progress(self, caller: Caller) -> dict[str, Progress]:
        """How far the deployments of the caller's endpoints have come, by endpoint, of those that are under way."""
        scope = caller.scope
        return {
            each.record.name: each.record.progress
            for each in self._endpoints.values()
            if each.record.id.scope == scope and each.record.progress is not None
        }

    async def _list_endpoints(self, request: Request, caller: Caller) -> Answer:
        entries = [endpoint_summary(record) for record in self._records(caller)]
        return page_of(entries, request, "EndpointName", "Endpoints", "EndpointStatus")

    async def _update_endpoint(self, request: Request, caller: Caller) -> Answer:
        endpoint = self._endpoint(request["EndpointName"], caller)
        record = endpoint.record
        if record.status is not Status.UPDATE_ROLLBACK_FAILED:
            _check_changeable(record)
        fleet = self._fleet(request["EndpointConfigName"], caller)
        deployment = deployment_of(request)
        if request.get("RetainDeploymentConfig"):
            deployment = deployment or record.deployment
        if request.get("RetainAllVariantProperties"):
            retain(record.current, fleet, request.get("ExcludeRetainedVariantProperties", ()))
        if record.current is not None:
            check_kind(record.current.config, fleet.config, record.arn)
        self._dependencies.check_update(record.id, fleet.instance_types())
        check_update(record, fleet, deployment, self._dependencies.alarm)
        assert record.current is not None
        plan = Plan(Policy.of(deployment), record.current.counts, fleet.counts)
        progress = plan.begin(self._dependencies.now())
        await endpoint.change(
            status=Status.UPDATING, pending=fleet, deployment=deployment, progress=progress, reason=""
        )
        return {"EndpointArn": record.arn}

    async def _update_weights(self, request: Request, caller: Caller) -> Answer:
        endpoint = self._changeable(request["EndpointName"], caller)
        record = endpoint.record
        fleet = record.current
        assert fleet is not None
        weights, counts = dict(fleet.weights), dict(fleet.counts)
        for desired in request["DesiredWeightsAndCapacities"]:
            name = desired["VariantName"]
            if name not in weights:
                msg = f'The variant name "{name}" does not exist for endpoint "{record.arn}".'
                raise invalid(f"{msg} Its variants are {', '.join(weights)}.")
            check_desired_capacity(desired, asynchronous=fleet.asynchronous is not None)
            weights[name] = desired.get("DesiredWeight", weights[name])
            counts[name] = desired.get("DesiredInstanceCount", counts[name])
        changed = replace(fleet, weights=weights, counts=counts)
        await endpoint.change(status=Status.UPDATING, current=changed, reason="")
        return {"EndpointArn": record.arn}

    async def _delete_endpoint(self, request: Request, caller: Caller) -> Answer:
        endpoint = self._endpoint(request["EndpointName"], caller)
        if endpoint.record.status is not Status.DELETING:
            await endpoint.change(status=Status.DELETING)
        return {}

    # capacity

    def ids(self) -> list[EndpointId]:
        """All endpoints."""
        return list(self._endpoints)

    def capacity(self, endpoint: EndpointId, variant: str) -> VariantCapacity | None:
        """How many instances a variant has; None if there is none of that name, or its endpoint is being deleted."""
        found = self._endpoints.get(endpoint)
        record = None if found is None else found.record
        fleet = None if record is None else record.current or record.pending
        if found is None or record is None or fleet is None or record.status is Status.DELETING:
            return None
        if variant not in fleet.counts:
            return None
        is_settled = record.status is Status.IN_SERVICE
        running = found.fleets.instances().get(variant, 0)
        instance_type = fleet.instance_types()[variant]
        least = 1 if fleet.asynchronous is None else 0
        return VariantCapacity(
            fleet.counts[variant], running, is_settled, instance_type, record.reason, least
        )

    def config_of(self, endpoint: EndpointId) -> Mapping[str, Any] | None:
        """The endpoint configuration that an endpoint serves by; None if there is no such endpoint."""
        found = self._endpoints.get(endpoint)
        fleet = None if found is None else found.record.current or found.record.pending
        return None if fleet is None else fleet.config

    async def set_count(self, endpoint: EndpointId, variant: str, count: int) -> None:
        """Have so many instances of a variant. It returns before they are there.

        Raises:
            ApiError: its endpoint is not in service.
        """
        found = self._endpoints.get(endpoint)
        fleet = None if found is None else found.record.current
        if found is None or fleet is None or variant not in fleet.counts:
            arn = endpoint.scope.arn(_ENDPOINT, endpoint.name)
            raise invalid(f'Could not find variant "{variant}" of endpoint "{arn}".')
        _check_changeable(found.record)
        changed = replace(fleet, counts={**fleet.counts, variant: count})
        await found.change(status=Status.UPDATING, current=changed, reason="")

    # deployments (`Endpoints`)

    def deployed(self, endpoint: EndpointId) -> Deployed | None:
        """An endpoint as it is now; None if there is none of that name."""
        found = self._endpoints.get(endpoint)
        fleet = None if found is None else found.record.current or found.record.pending
        if found is None or fleet is None:
            return None
        return Deployed(str(found.record.status), fleet.config_name, fleet.config, found.record.reason)

    async def make_config(self, request: Request, caller: Caller) -> None:
        """Make an endpoint configuration.

        Raises:
            ApiError: it is refused.
        """
        await self._create_config(request, caller)

    async def deploy(self, endpoint: EndpointId, config_name: str) -> None:
        """Have an endpoint become what a configuration says. It returns before it is.

        Raises:
            ApiError: it is not in service, or may not be changed so.
        """
        request = {"EndpointName": endpoint.name, "EndpointConfigName": config_name}
        await self._update_endpoint(request, Caller(account=endpoint.account, region=endpoint.region))

    # tags

    async def _check_arn(self, arn: str, caller: Caller) -> None:
        endpoints = {record.arn for record in self._records(caller)}
        if arn in endpoints | self._models.arns(caller.scope) | self._configs.arns(caller.scope):
            return
        for guest in self._guests:
            if await guest.has_made(arn, caller.scope):
                return
        raise invalid(f'Could not find resource "{arn}".')

    async def put_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to what a guest has made."""
        await self._database.put_tags(arn, tags)

    async def _add_tags(self, request: Request, caller: Caller) -> Answer:
        arn = request["ResourceArn"]
        await self._check_arn(arn, caller)
        tags = tags_of(request)
        every = {**await self._database.tags(arn), **tags}
        if len(every) > _MAX_TAGS:
            raise ApiError(
                "ResourceLimitExceeded", f'"{arn}" would have {len(every)} tags; it may have {_MAX_TAGS}'
            )
        await self._database.put_tags(arn, tags)
        return {"Tags": _tag_list(every)}

    async def _list_tags(self, request: Request, caller: Caller) -> Answer:
        await self._check_arn(request["ResourceArn"], caller)
        return {"Tags": _tag_list(await self._database.tags(request["ResourceArn"]))}

    async def _delete_tags(self, request: Request, caller: Caller) -> Answer:
        await self._check_arn(request["ResourceArn"], caller)
        await self._database.remove_tags(request["ResourceArn"], request["TagKeys"])
        return {}


def _check_changeable(record: EndpointRecord) -> None:
    """Refuse a change of an endpoint that is not in service.

    Raises:
        ApiError: it is not.
    """
    if record.status is Status.FAILED:
        raise invalid(f'Cannot update failed endpoint "{record.arn}"; delete it and create another one.')
    if record.status is not Status.IN_SERVICE:
        raise invalid(f'Cannot update in-progress endpoint "{record.arn}".')


def _key(endpoint: EndpointId) -> DocumentKey:
    return DocumentKey(_ENDPOINT, *endpoint)


def _remove_others(directory: Path, fleets: Collection[str]) -> None:
    """Remove what is left of fleets that are no more."""
    if directory.is_dir():
        for entry in directory.iterdir():
            if entry.name not in fleets:
                shutil.rmtree(entry, ignore_errors=True)


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
