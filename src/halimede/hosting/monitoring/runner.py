"""Runs monitoring jobs: each in a process of its own, which is given captured files and leaves what it has found."""

import asyncio
import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from halimede.hosting.errors import invalid
from halimede.hosting.monitoring.captured import END, head_of
from halimede.hosting.monitoring.captures import EndpointConfigs, capture_of
from halimede.hosting.monitoring.job import NO_DATA, OUTPUTS, Plan, Result
from halimede.hosting.monitoring.records import Execution
from halimede.hosting.store.objects import Objects

_PROGRAM = "halimede.hosting.monitoring.job"
_BASELINE_BYTES = 64 << 20
_COPY_BYTES = 1 << 20

_KINDS = {".json": "application/json", ".html": "text/html; charset=utf-8"}


def missing_library() -> str:
    """What to install before a job can run; "" for nothing."""
    if importlib.util.find_spec("scipy") is not None:
        return ""
    return 'The monitoring job needs scipy, which is not installed; install it with: pip install "halimede[drift]"'


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Runs jobs (`Runner`).

    Attributes:
        directory: where jobs have their files while they run.
        logs: where logs are, as ``ACCOUNT/REGION/ENDPOINT/monitoring/SCHEDULE.log``.
        configs: endpoints.
        objects: the objects of an account.
    """

    directory: Path
    logs: Path
    configs: EndpointConfigs
    objects: Callable[[str], Objects]

    async def run(self, execution: Execution) -> Result:
        """Run one to its end; if this is cancelled, the job is ended.

        Raises:
            ApiError: it fails, for this reason.
        """
        reason = missing_library()
        if reason:
            raise invalid(reason)
        work = execution.work
        try:
            async with asyncio.timeout(work.max_runtime_s):
                return await self._run(execution)
        except TimeoutError:
            raise invalid(
                f"The job took longer than MaxRuntimeInSeconds, which is {work.max_runtime_s:g}"
            ) from None

    async def _run(self, execution: Execution) -> Result:
        objects = self.objects(execution.scope.account)
        directory = self.directory / execution.name
        await asyncio.to_thread(_make_empty, directory / "output")
        try:
            urls = await self._captured(execution, objects)
            if not urls:
                return Result(NO_DATA)
            plan = await self._plan(execution, objects, directory)
            await asyncio.to_thread(plan.write, directory / "plan.json")
            result = await self._work(execution, objects, urls, directory)
            if not result.failure:
                for name in OUTPUTS:
                    path = directory / "output" / name
                    await objects.write(f"{execution.output}/{name}", path, _KINDS[path.suffix])
            return result
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    async def _captured(self, execution: Execution, objects: Objects) -> list[str]:
        capture = capture_of(self.configs, execution.endpoint)
        urls: list[str] = []
        for prefix in capture.prefixes(execution.begin, execution.end):
            urls += [each.url for each in await objects.list(prefix) if each.url.endswith(".jsonl")]
        return urls

    async def _plan(self, execution: Execution, objects: Objects, directory: Path) -> Plan:
        work = execution.work
        paths = {}
        for name, url in (("statistics", work.statistics), ("constraints", work.constraints)):
            paths[name] = ""
            if url:
                path = directory / f"baseline-{name}.json"
                await asyncio.to_thread(path.write_bytes, await objects.read(url, _BASELINE_BYTES))
                paths[name] = str(path)
        return Plan(
            execution.endpoint.name,
            execution.schedule,
            _iso(execution.begin),
            _iso(execution.end),
            paths["statistics"],
            paths["constraints"],
            work.statistics or work.constraints,
            str(directory / "output"),
        )

    async def _work(
        self, execution: Execution, objects: Objects, urls: Iterable[str], directory: Path
    ) -> Result:
        """What the process finds.

        Raises:
            ApiError: it ends without having found anything, or a file cannot be read.
        """
        log = self._log(execution)
        await asyncio.to_thread(_note, log, f"{execution.name} begins")
        theirs, ours = os.pipe()
        with os.fdopen(ours, "wb") as stdin:
            try:
                process = await _start(directory / "plan.json", theirs, log)
            finally:
                os.close(theirs)
            try:
                await _feed(stdin, objects, urls, directory)
                status = await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
                with suppress(BrokenPipeError):
                    stdin.close()
        try:
            return await asyncio.to_thread(Result.read, directory / "output")
        except (OSError, ValueError, TypeError):
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise invalid(f"The job {how}; its log has the details: {log}") from None

    def _log(self, execution: Execution) -> Path:
        endpoint = execution.endpoint
        parent = endpoint.scope.directory(self.logs) / endpoint.name / "monitoring"
        parent.mkdir(parents=True, exist_ok=True)
        return parent / f"{execution.schedule}.log"


def _make_empty(directory: Path) -> None:
    shutil.rmtree(directory.parent, ignore_errors=True)
    directory.mkdir(parents=True)


async def _start(plan: Path, stdin: int, log: Path) -> asyncio.subprocess.Process:
    # one thread of each library, so that models keep the others
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", _PROGRAM, str(plan),
            stdin=stdin, stdout=output, stderr=output, env=environment, start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(output)


async def _feed(stdin: IO[bytes], objects: Objects, urls: Iterable[str], directory: Path) -> None:
    """Give the process the files, as fast as it takes them; one that has ended takes none.

    Raises:
        ApiError: a file cannot be read.
    """
    try:
        for url in urls:
            async with objects.file(url, directory) as path:
                await asyncio.to_thread(_copy, url, path, stdin)
        await asyncio.to_thread(_finish, stdin)
    except BrokenPipeError:
        return


def _copy(url: str, path: Path, stdin: IO[bytes]) -> None:
    stdin.write(head_of(url))
    with path.open("rb") as file:
        shutil.copyfileobj(file, stdin, _COPY_BYTES)


def _finish(stdin: IO[bytes]) -> None:
    stdin.write(b"\n" + END)
    stdin.close()


def _note(log: Path, text: str) -> None:
    moment = datetime.fromtimestamp(time.time(), UTC)
    with log.open("a") as file:
        file.write(f"{moment:%Y-%m-%dT%H:%M:%SZ} {text}\n")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
