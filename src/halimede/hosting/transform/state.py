"""What is kept of transform jobs over restarts, in a file of its own: the jobs, their objects, and how far they are.

In memory are only jobs that are not settled, as there is no end to the others: nobody can delete them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.control.resources import is_taken
from halimede.hosting.identity import Scope
from halimede.hosting.transform.inputs import InputObject
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.progress import Progress

_JOB, _INPUTS, _PROGRESS = "transform-job", "transform-inputs", "transform-progress"

JobId = tuple[Scope, str]


class TransformState:
    """All of it. Lives on the event loop.

    Attributes:
        unsettled: what is known of each job that is not settled, or is being created.
        progress: how far each is.
    """

    def __init__(self, path: Path) -> None:
        """What is in a file, which is read by `open`."""
        self._database = Database(path)
        self._inputs: dict[JobId, list[InputObject]] = {}
        self.unsettled: dict[JobId, JobRecord] = {}
        self.progress: dict[JobId, Progress] = {}

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._database.open()
        for key, document in (await self._database.documents(_JOB)).items():
            record = JobRecord.from_document(document)
            if not record.is_settled:
                self.unsettled[key.scope, key.name] = record
        for key, document in (await self._database.documents(_PROGRESS)).items():
            self.progress[key.scope, key.name] = Progress.from_document(document)
        for key, document in (await self._database.documents(_INPUTS)).items():
            self._inputs[key.scope, key.name] = [InputObject(*each) for each in document["objects"]]

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._database.close()

    async def put(self, job: JobRecord) -> None:
        """Keep what has become of a job; of one that is settled the objects are forgotten.

        Raises:
            ApiError: it cannot be written.
        """
        await self._database.put(_key(_JOB, job), job.document())
        if not job.is_settled:
            self.unsettled[job.scope, job.name] = job
        else:
            self.unsettled.pop((job.scope, job.name), None)
            self._inputs.pop((job.scope, job.name), None)
            self.progress.pop((job.scope, job.name), None)
            await self._database.remove(_key(_INPUTS, job), "")
            await self._database.remove(_key(_PROGRESS, job), "")

    async def find(self, scope: Scope, name: str) -> JobRecord | None:
        """What is known of a job; None if there is none of that name. It does not wait for one that is not settled.

        Raises:
            ApiError: the file cannot be read.
        """
        record = self.unsettled.get((scope, name))
        if record is not None:
            return record
        document = await self._database.document(DocumentKey(_JOB, *scope, name))
        return None if document is None else JobRecord.from_document(document)

    async def all(self, scope: Scope) -> Sequence[JobRecord]:
        """What is known of all jobs of an account and region.

        Raises:
            ApiError: the file cannot be read.
        """
        kept = await self._database.documents(_JOB, scope)
        records = {key.name: JobRecord.from_document(document) for key, document in kept.items()}
        records |= {name: record for (where, name), record in self.unsettled.items() if where == scope}
        return list(records.values())

    async def is_taken(self, scope: Scope, name: str) -> bool:
        """Whether there is a job of that name, which the case of its letters does not tell from another one.

        Raises:
            ApiError: the file cannot be read.
        """
        if await self._database.is_taken(DocumentKey(_JOB, *scope, name)):
            return True
        # last, so that nobody can have taken it meanwhile
        return is_taken(name, (each for where, each in self.unsettled if where == scope))

    def inputs(self, job: JobRecord) -> list[InputObject] | None:
        """The objects of a job; None if they have not been listed."""
        return self._inputs.get((job.scope, job.name))

    async def put_inputs(self, job: JobRecord, inputs: Iterable[InputObject]) -> None:
        """Keep the objects of a job.

        Raises:
            ApiError: they cannot be written.
        """
        kept = list(inputs)
        await self._database.put(_key(_INPUTS, job), {"objects": [list(each) for each in kept]})
        self._inputs[job.scope, job.name] = kept

    async def put_progress(self, job: JobRecord, progress: Progress) -> None:
        """Keep how far a job is.

        Raises:
            ApiError: it cannot be written.
        """
        self.progress[job.scope, job.name] = progress
        await self._database.put(_key(_PROGRESS, job), progress.document())


def _key(kind: str, job: JobRecord) -> DocumentKey:
    return DocumentKey(kind, *job.scope, job.name)
