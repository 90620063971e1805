"""What tests of data capture share: invocations as the host tells of them, and what was made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.writer import SpoolWriter
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.taps import Observer, tap_of
from halimede.hosting.specs import Container, DataCapture, Variant
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead

ENDPOINT = EndpointId("123456789012", "us-east-1", "e")
CAPTURE = DataCapture("s3://bucket/some/prefix", 100)
NOON = 1_800_014_400.0
"""2027-01-15T12:00:00Z"""


def variant(capture: DataCapture | None = CAPTURE, name: str = "v") -> Variant:
    """A variant that is captured."""
    return Variant(name, "m", Container("image"), "ml.local.cpu", capture=capture)


@dataclass(eq=False)
class Counted:
    """What was counted (`CaptureMeter`)."""

    records: int = 0
    too_large: int = 0
    dropped: int = 0

    def captured(self, count: int) -> None:
        """Count them."""
        self.records += count

    def capture_too_large(self) -> None:
        """Count it."""
        self.too_large += 1

    def capture_dropped(self, count: int) -> None:
        """Count them."""
        self.dropped += count


@dataclass(eq=False)
class Spool:
    """A writer whose clock a test moves, and invocations that it captures."""

    directory: Path
    settings: CaptureSettings = field(default_factory=CaptureSettings)
    spec: DataCapture = CAPTURE
    chance: Callable[[], float] = lambda: 0.0
    now: float = NOON

    def __post_init__(self) -> None:
        self.meter = Counted()
        self.writer = SpoolWriter(self.directory, self.settings, lambda: self.now, self.chance)
        self.observers: Sequence[Observer] = self.writer.observers(ENDPOINT, variant(self.spec), self.meter)

    def invoke(
        self,
        asked: Sequence[bytes] = (b"asked",),
        answered: Sequence[bytes] = (b"answered",),
        status: int = 200,
        headers: dict[str, str] | None = None,
        answer_type: str = "application/json",
    ) -> None:
        """An invocation whose bodies come in these parts."""
        headers = {"content-type": "application/json"} if headers is None else headers
        head = Head("POST", "/endpoints/e/invocations", headers, list(headers.items()), "1.1")
        tap = tap_of(self.observers, head, streamed=False)
        if tap is None:
            return
        for index, part in enumerate(asked):
            tap.request_data(part, complete=index == len(asked) - 1)
        if 200 <= status < 300:
            tap.response_begun(ResponseHead(200, {"content-type": answer_type}, "1.1"))
            for part in answered:
                tap.response_data(part)
        tap.ended(status, 1000)

    def files(self, suffix: str) -> list[Path]:
        """The files of a kind, the oldest first."""
        return sorted(self.directory.glob(f"*{suffix}")) if self.directory.is_dir() else []
