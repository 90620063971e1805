"""The operations on data-quality job definitions."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.control.resources import is_taken, tags_of
from halimede.hosting.identity import Caller
from halimede.hosting.monitoring.records import Definition
from halimede.hosting.monitoring.refusals import check_inputs, check_output, check_scripts, missing, taken
from halimede.hosting.monitoring.state import MonitoringState

WORDS = "data quality job definition"

Request = Mapping[str, Any]
Answer = dict[str, Any]


class DefinitionOperations:
    """Job definitions: made once and never changed."""

    def __init__(self, state: MonitoringState, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "CreateDataQualityJobDefinition": self._create,
            "DescribeDataQualityJobDefinition": self._describe,
            "ListDataQualityJobDefinitions": self._list,
            "DeleteDataQualityJobDefinition": self._delete,
        }

    async def _create(self, request: Request, caller: Caller) -> Answer:
        check_inputs(request["DataQualityJobInput"])
        check_scripts(request["DataQualityAppSpecification"])
        check_output(request["DataQualityJobOutputConfig"]["MonitoringOutputs"][0]["S3Output"]["S3Uri"])
        body = {member: value for member, value in request.items() if member != "Tags"}
        definition = Definition(caller.scope, request["JobDefinitionName"], body, self._now())
        async with self._state.changing:
            names = (name for scope, name in self._state.definitions if scope == caller.scope)
            if is_taken(definition.name, names):
                raise taken(WORDS, definition.arn)
            await self._state.add_definition(definition, tags_of(request))
        return {"JobDefinitionArn": definition.arn}

    def _find(self, request: Request, caller: Caller) -> Definition:
        name = request["JobDefinitionName"]
        found = self._state.definitions.get((caller.scope, name))
        if found is None:
            raise missing(WORDS, Definition(caller.scope, name, {}, 0.0).arn)
        return found

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        found = self._find(request, caller)
        created = datetime.fromtimestamp(found.created, UTC)
        return {**found.request, "JobDefinitionArn": found.arn, "CreationTime": created}

    async def _list(self, request: Request, caller: Caller) -> Answer:
        entries = [
            {
                "MonitoringJobDefinitionName": each.name,
                "MonitoringJobDefinitionArn": each.arn,
                "CreationTime": datetime.fromtimestamp(each.created, UTC),
                "EndpointName": each.endpoint,
            }
            for (scope, _), each in self._state.definitions.items()
            if scope == caller.scope and request.get("EndpointName", each.endpoint) == each.endpoint
        ]
        return page_of(entries, request, "MonitoringJobDefinitionName", "JobDefinitionSummaries")

    async def _delete(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            await self._state.remove_definition(self._find(request, caller))
        return {}
