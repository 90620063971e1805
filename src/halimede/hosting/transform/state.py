"""What is kept of transform jobs over restarts, in a file of its own: the jobs, their objects, and how far they are."""

from collections.abc import Iterable
from pathlib import Path

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.identity import Scope
from halimede.hosting.transform.inputs import InputObject
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.progress import Progress

_JOB, _INPUTS, _PROGRESS = "transform-job", "transform-inputs", "transform-progress"

JobId = tuple[Scope, str]


class TransformState:
    """All of it. Lives on the event loop.

    Attributes:
        jobs: what is known of each job.
        progress: how far each is.
    """

    def __init__(self, path: Path) -> None:
        """What is in a file, which is read by `open`."""
        self._database = Database(path)
        self._inputs: dict[JobId, list[InputObject]] = {}
        self.jobs: dict[JobId, JobRecord] = {}
        self.progress: dict[JobId, Progress] = {}

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._database.open()
        for key, document in (await self._database.documents(_JOB)).items():
            self.jobs[key.scope, key.name] = JobRecord.from_document(document)
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
        self.jobs[job.scope, job.name] = job
        if job.is_settled:
            self._inputs.pop((job.scope, job.name), None)
            self.progress.pop((job.scope, job.name), None)
            await self._database.remove(_key(_INPUTS, job), "")
            await self._database.remove(_key(_PROGRESS, job), "")

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
