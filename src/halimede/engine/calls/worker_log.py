"""What models log and print, in the server's log."""

import logging
from typing import Final

logger = logging.getLogger("halimede")


def log_record(model: str, version: int, level: int, file: str, line: int, text: str) -> None:
    """Log a model's text as from the line of its own file.

    Args:
        model: the model.
        version: its version.
        level: as in `logging`; what is below INFO is only for a verbose log.
        file: name of the file that logs, without directories.
        line: the line in it.
        text: what it says.
    """
    if not logger.isEnabledFor(level):
        return
    origin = {"model": model, "version": version}
    logger.handle(logger.makeRecord(logger.name, level, file, line, text, (), None, extra=origin))


class PrintedLines:
    """What a worker prints on one of its streams, logged line by line.

    A line ends with a line feed. Of one that a carriage return overwrites, the last state is logged, as a terminal
    would show it; empty ones are not.
    """

    LONGEST: Final = 8192
    """Bytes of a line; the rest of a longer one is a line of its own."""

    def __init__(self, model: str, version: int, stream: str) -> None:
        """Lines of a model's worker.

        Args:
            model: the model.
            version: its version.
            stream: ``stdout`` or ``stderr``.
        """
        self._model = model
        self._version = version
        self._stream = stream
        self._rest = b""
        self._count = 0

    def feed(self, data: bytes) -> None:
        """Log the lines that the bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log(self._shortened(line))
        self._rest = self._shortened(self._rest)

    def close(self) -> None:
        """Log what was printed without an end of line."""
        self._log(self._rest)
        self._rest = b""

    def _shortened(self, line: bytes) -> bytes:
        """Log the pieces of a long line but for the last, which is returned."""
        begin = 0
        while len(line) - begin > self.LONGEST:
            end = begin + self.LONGEST
            while end > begin + self.LONGEST - 4 and line[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
            self._log(line[begin:end])
            begin = end
        return line[begin:]

    def _log(self, line: bytes) -> None:
        self._count += 1
        text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
        if text:
            text = f"model '{self._model}' version {self._version}: {text}"
            log_record(self._model, self._version, logging.INFO, self._stream, self._count, text)
