"""What experiments there are, in a file of their own. A change is on disk before it is here."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.experiments.records import ExperimentRecord
from halimede.hosting.identity import Scope

_KIND = "inference-experiment"


class ExperimentState:
    """All of them. Lives on the event loop.

    Attributes:
        changing: whoever changes something holds it.
    """

    def __init__(self, path: Path) -> None:
        """What is in a file, which is read by `open`."""
        self._database = Database(path)
        self._records: dict[tuple[Scope, str], ExperimentRecord] = {}
        self.changing = asyncio.Lock()

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._database.open()
        for key, document in (await self._database.documents(_KIND)).items():
            self._records[key.scope, key.name] = ExperimentRecord.from_document(document)

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._database.close()

    def find(self, scope: Scope, name: str) -> ExperimentRecord | None:
        """The experiment of a name."""
        return self._records.get((scope, name))

    def all(self) -> list[ExperimentRecord]:
        """Those of all accounts."""
        return list(self._records.values())

    def of(self, scope: Scope) -> list[ExperimentRecord]:
        """Those of an account and region."""
        return [record for record in self._records.values() if record.scope == scope]

    async def add(self, record: ExperimentRecord, tags: Mapping[str, str]) -> None:
        """Keep a new experiment with its tags."""
        await self._database.add(_key(record), record.document(), record.arn, tags)
        self._records[record.scope, record.name] = record

    async def put(self, record: ExperimentRecord) -> None:
        """Keep what has become of an experiment: a changed copy of its record."""
        await self._database.put(_key(record), record.document())
        self._records[record.scope, record.name] = record

    async def remove(self, record: ExperimentRecord) -> None:
        """Forget an experiment."""
        await self._database.remove(_key(record), record.arn)
        del self._records[record.scope, record.name]


def _key(record: ExperimentRecord) -> DocumentKey:
    return DocumentKey(_KIND, *record.scope, record.name)
