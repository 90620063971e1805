"""A model archive on disk made into the model's directory, and stopped when nobody waits for it any more."""

import asyncio
import shutil
import subprocess
from concurrent.futures import Executor
from pathlib import Path

from halimede.core.errors import HalimedeError, InvalidArgumentError, OutOfMemoryError
from halimede.hosting.errors import ApiError, invalid
from halimede.repository.disk_use import disk_bytes
from halimede.repository.model_archives import extract_model


async def extract(archive: Path, directory: Path, url: str, threads: Executor) -> int:
    """Extract an archive; the bytes that its files take on disk.

    Args:
        archive: the file.
        directory: where to; there must be nothing.
        url: where the archive is from, for texts.
        threads: one of them waits for the program that extracts.

    Raises:
        ApiError: it is none that may be served, or does not fit on the disk. Nothing is left then, nor when this is
            cancelled.
    """
    extraction = Extraction(archive, directory)
    work = asyncio.get_running_loop().run_in_executor(threads, extraction.run)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        extraction.stop()
        await asyncio.wait({work})
        if work.exception() is None:  # it was complete already
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        raise
    except HalimedeError as error:
        raise refused(error, archive, directory, url) from None


def refused(error: HalimedeError, archive: Path, directory: Path, url: str) -> ApiError:
    """Why an archive from a URL cannot be extracted into a directory."""
    text = error.message.replace(f"'{archive}'", f"'{url}'")
    if isinstance(error, InvalidArgumentError):
        return invalid(f"{text}. Pack the model repository anew with: tar -czf model.tar.gz MODEL…")
    if isinstance(error, OutOfMemoryError):
        msg = f"{text}; free some of the disk of {directory.parent}, or use a smaller model"
        return ApiError("InsufficientStorage", msg, 507)
    return ApiError("InternalFailure", text, 500)


class Extraction:
    """An extraction on a thread, and how it is stopped from another."""

    def __init__(self, archive: Path, directory: Path) -> None:
        self._archive = archive
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self) -> int:
        """Extract; blocks."""
        extract_model(self._archive, self._directory, on_started=self._started)
        return disk_bytes(self._directory)

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self._stopped:
            process.kill()

    def stop(self) -> None:
        """Have it end soon, with an error."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
