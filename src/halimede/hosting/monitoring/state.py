"""What monitoring knows, in a file of its own.

A change is on disk before it is here, and here before it is acted on.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.identity import Scope
from halimede.hosting.monitoring.records import DEFINITION, SCHEDULE, Definition, Execution, Schedule

_EXECUTION = "monitoring-execution"

_KEPT = 1_000
"""So many executions of a schedule are kept."""

_KEPT_OF_DELETED = 10_000
"""And so many of all schedules that have been deleted."""

Name = tuple[Scope, str]


class MonitoringState:
    """All of it. Lives on the event loop.

    Attributes:
        definitions, schedules: by scope and name.
        executions: by scope and name, in the order in which they were made.
        changing: whoever changes something holds it.
    """

    def __init__(self, path: Path) -> None:
        """What is in a file, which is read by `open`."""
        self._database = Database(path)
        self.definitions: dict[Name, Definition] = {}
        self.schedules: dict[Name, Schedule] = {}
        self.executions: dict[Name, Execution] = {}
        self.changing = asyncio.Lock()

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._database.open()
        for key, document in (await self._database.documents(DEFINITION)).items():
            self.definitions[key.scope, key.name] = Definition(key.scope, key.name, **document)
        for key, document in (await self._database.documents(SCHEDULE)).items():
            self.schedules[key.scope, key.name] = Schedule.from_document(key.scope, key.name, document)
        found = [
            Execution.from_document(key.scope, key.name, document)
            for key, document in (await self._database.documents(_EXECUTION)).items()
        ]
        for execution in sorted(found, key=lambda each: (each.created, each.name)):
            self.executions[execution.scope, execution.name] = execution

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._database.close()

    # definitions

    async def add_definition(self, definition: Definition, tags: Mapping[str, str]) -> None:
        """Keep a new one with its tags."""
        key = DocumentKey(DEFINITION, *definition.scope, definition.name)
        await self._database.add(key, definition.document(), definition.arn, tags)
        self.definitions[definition.scope, definition.name] = definition

    async def remove_definition(self, definition: Definition) -> None:
        """Forget one."""
        key = DocumentKey(DEFINITION, *definition.scope, definition.name)
        await self._database.remove(key, definition.arn)
        del self.definitions[definition.scope, definition.name]

    # schedules

    async def add_schedule(self, schedule: Schedule, tags: Mapping[str, str]) -> None:
        """Keep a new one with its tags."""
        key = DocumentKey(SCHEDULE, *schedule.scope, schedule.name)
        await self._database.add(key, schedule.document(), schedule.arn, tags)
        self.schedules[schedule.scope, schedule.name] = schedule

    async def put_schedule(self, schedule: Schedule) -> None:
        """Keep what has become of one."""
        key = DocumentKey(SCHEDULE, *schedule.scope, schedule.name)
        await self._database.put(key, schedule.document())
        self.schedules[schedule.scope, schedule.name] = schedule

    async def remove_schedule(self, schedule: Schedule) -> None:
        """Forget one; its executions stay."""
        key = DocumentKey(SCHEDULE, *schedule.scope, schedule.name)
        await self._database.remove(key, schedule.arn)
        del self.schedules[schedule.scope, schedule.name]

    # executions

    def executions_of(self, scope: Scope, schedule: str) -> list[Execution]:
        """Those of a schedule, the oldest first."""
        return [
            each for each in self.executions.values() if each.scope == scope and each.schedule == schedule
        ]

    async def put_execution(self, execution: Execution) -> None:
        """Keep one, or what has become of it."""
        key = DocumentKey(_EXECUTION, *execution.scope, execution.name)
        is_new = (execution.scope, execution.name) not in self.executions
        await self._database.put(key, execution.document())
        self.executions[execution.scope, execution.name] = execution
        if is_new:
            of_deleted = [
                each for each in self.executions.values() if (each.scope, each.schedule) not in self.schedules
            ]
            of_this = self.executions_of(execution.scope, execution.schedule)
            for old in (*of_this[:-_KEPT], *of_deleted[:-_KEPT_OF_DELETED]):
                await self._database.remove(DocumentKey(_EXECUTION, *old.scope, old.name), "")
                del self.executions[old.scope, old.name]

    # tags

    def has(self, scope: Scope, arn: str) -> bool:
        """Whether an ARN is that of a definition or schedule of a scope."""
        every: list[Definition | Schedule] = [*self.definitions.values(), *self.schedules.values()]
        return any(each.scope == scope and each.arn == arn for each in every)

    async def tags(self, arn: str) -> dict[str, str]:
        """The tags of a definition or schedule."""
        return await self._database.tags(arn)

    async def put_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags."""
        await self._database.put_tags(arn, tags)

    async def remove_tags(self, arn: str, keys: list[str]) -> None:
        """Take tags away."""
        await self._database.remove_tags(arn, keys)
