"""One object of a job: read, split, sent, and put together again."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from halimede.core import tasks
from halimede.hosting.transform.checkpoint import Checkpoint, basis_of, read_checkpoint
from halimede.hosting.transform.payloads import ObjectReader, Payload
from halimede.hosting.transform.progress import Counts
from halimede.hosting.transform.sender import Sender
from halimede.hosting.transform.spec import TransformSpec

logger = logging.getLogger("halimede")

_NEWLINE = b"\n"
_CHECKPOINT_S = 5.0


class Transformation:
    """Transforms one object. Lives on the event loop; files are read and written on other threads.

    Attributes:
        counts: what has been done of it by now.
    """

    def __init__(self, spec: TransformSpec, sender: Sender, permits: asyncio.Semaphore) -> None:
        """Nothing is done yet.

        Args:
            spec: the job's.
            sender: sends payloads.
            permits: one is taken for each payload that is under way, or whose answer waits for those before it.
        """
        self._spec = spec
        self._sender = sender
        self._permits = permits
        self.counts = Counts()
        self._kept = Path()
        self._point = Checkpoint("")
        self._kept_at = 0.0

    async def run(self, path: Path, output: Path, etag: str) -> None:
        """Write to a file what comes of an object that is in another one.

        What an earlier process of the host has written there is gone on with, if the object is the same. If this is
        cancelled, what is written stays.

        Args:
            path: the object.
            output: the file; a checkpoint is kept beside it.
            etag: changes whenever the object does.

        Raises:
            TransformError: it cannot be transformed.
        """
        self._kept = output.with_suffix(".checkpoint")
        basis = basis_of(etag, self._spec.split)
        self._point = await asyncio.to_thread(read_checkpoint, self._kept, output, basis)
        with await tasks.opened(_opened, output, self._point.bytes_out) as out:
            if self._spec.split.streams:
                await self._stream(path, out)
            else:
                with closing(ObjectReader(path, self._spec.split)) as reader:
                    await self._pass_on(reader, out)
            await asyncio.to_thread(out.flush)
            self.counts.bytes_out = out.tell()

    async def _stream(self, path: Path, out: BinaryIO) -> None:
        """Send the object as a whole, in chunks."""
        readers: list[ObjectReader] = []

        def begin() -> Callable[[int], bytes]:
            while readers:
                readers.pop().close()
            readers.append(ObjectReader(path, self._spec.split))
            return readers[0].read

        try:
            await self._sender.stream(begin, out)
            self.counts.records, self.counts.bytes_in = 1, readers[0].position
        finally:
            for reader in readers:
                reader.close()
        if self._spec.adds_newlines:
            await asyncio.to_thread(_end_line, out)

    async def _pass_on(self, reader: ObjectReader, out: BinaryIO) -> None:
        """Send the object's payloads, and write the answers in their order."""
        under_way: deque[tuple[Payload, asyncio.Task[bytes]]] = deque()
        self.counts.records, skipped = self._point.records, self._point.payloads
        self._kept_at = asyncio.get_running_loop().time()
        try:
            while payloads := await asyncio.to_thread(reader.take):
                fresh = payloads[skipped:]
                skipped = max(0, skipped - len(payloads))
                for payload in fresh:
                    while self._permits.locked() and under_way:
                        await self._write_next(under_way, reader, out)
                    await self._permits.acquire()
                    sending = tasks.submit(self._sender.payload(payload.body))
                    under_way.append((payload, sending))
            while under_way:
                await self._write_next(under_way, reader, out)
            self.counts.bytes_in = reader.position
        finally:
            await tasks.cancel(*(sending for _, sending in under_way))
            for _, sending in under_way:
                self._permits.release()
                if not sending.cancelled():
                    sending.exception()  # the first error has been raised

    async def _write_next(
        self, under_way: deque[tuple[Payload, asyncio.Task[bytes]]], reader: ObjectReader, out: BinaryIO
    ) -> None:
        """Write the oldest answer, when it is there, and those after it that are there too."""
        await asyncio.wait([under_way[0][1]])
        ready: list[tuple[Payload, bytes]] = []
        while under_way and under_way[0][1].done():
            payload, sending = under_way[0]
            answer = sending.result()
            under_way.popleft()
            self._permits.release()
            ready.append((payload, answer))
        await asyncio.to_thread(self._write, ready, out)
        self.counts.records += sum(payload.count for payload, _ in ready)
        self.counts.bytes_in = reader.position
        point = self._point
        self._point = replace(point, payloads=point.payloads + len(ready), records=self.counts.records)
        await self._keep(out)

    async def _keep(self, out: BinaryIO) -> None:
        """Keep a checkpoint now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._kept_at + _CHECKPOINT_S:
            return
        self._kept_at = now
        self._point = replace(self._point, bytes_out=out.tell())
        try:
            await asyncio.to_thread(self._point.write, self._kept, out)
        except OSError as error:  # it would only be done again
            logger.warning("cannot write %s: %s", self._kept, error.strerror)

    def _write(self, ready: list[tuple[Payload, bytes]], out: BinaryIO) -> None:
        processing = self._spec.split.processing
        for payload, answer in ready:
            if processing is not None:
                answer = processing.after(payload.records, answer)
            out.write(answer)
            if self._spec.adds_newlines and not answer.endswith(_NEWLINE):
                out.write(_NEWLINE)


def _opened(output: Path, size: int) -> BinaryIO:
    """An output of which so many bytes are right, to be gone on with."""
    out = output.open("r+b" if size else "w+b")
    out.truncate(size)
    out.seek(size)
    return out


def _end_line(file: BinaryIO) -> None:
    """Add a newline to the end of a file that has none."""
    if file.tell():
        file.seek(-1, 1)
        if file.read(1) != _NEWLINE:
            file.write(_NEWLINE)
