"""What a listener shows of itself and asks of clients, as its files say now."""

import asyncio
import logging
import ssl
from datetime import UTC, datetime

from halimede.net.file_watch import FileWatch
from halimede.net.tls.certificates import CertificateError, TlsFiles, load_context, validity_remark

logger = logging.getLogger("halimede")


class Identity:
    """A certificate, its key and the roots of clients' certificates, read again when the files change.

    Connections keep what they began with. Files that cannot be used change nothing.

    Attributes:
        context: for the next connection.
        required_protocol: what clients must agree to by ALPN; "" for nothing.
    """

    def __init__(
        self,
        files: TlsFiles,
        protocol: str,
        *,
        required: bool = False,
        name: str = "TLS",
        interval_s: float = 1.0,
        reminder_s: float = 86_400.0,
    ) -> None:
        """Read the files.

        Args:
            files: where they are.
            protocol: what is spoken inside, by its name in ALPN.
            required: whether clients must agree to it.
            name: what the log calls it.
            interval_s: seconds between two looks at the files.
            reminder_s: seconds after which a certificate that has expired, or will soon, is warned of again.

        Raises:
            CertificateError: one cannot be used.
        """
        self._files = files
        self._name = name
        self._protocol = protocol
        self.required_protocol = protocol if required else ""
        self._reminder_s = reminder_s
        self._reminder: asyncio.TimerHandle | None = None
        self._watch = FileWatch(files.paths, self._read_again, interval_s)
        self.context = self._load()

    def start(self) -> None:
        """Look for changes from now on."""
        self._watch.start()
        if self._reminder is None:
            self._reminder = asyncio.get_running_loop().call_later(self._reminder_s, self._remind)

    def close(self) -> None:
        """Look for no more changes."""
        self._watch.close()
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def _load(self) -> ssl.SSLContext:
        context = load_context(self._files, self._protocol)
        self._warn()
        return context

    def _warn(self) -> None:
        remark = validity_remark(self._files.certificate, datetime.now(UTC))
        if remark:
            logger.warning("%s: %s", self._name, remark)

    def _remind(self) -> None:
        self._reminder = None
        self.start()
        self._warn()

    def _read_again(self) -> None:
        try:
            self.context = self._load()
        except CertificateError as error:
            logger.error("%s: changed files are not used, those read before still are: %s", self._name, error)
        else:
            names = ", ".join(f"'{path}'" for path in self._files.paths)
            logger.info("%s: new connections use the changed files %s", self._name, names)
