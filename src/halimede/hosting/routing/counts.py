"""What is counted of one variant: plain numbers, until somebody takes them to where they are kept."""

from dataclasses import dataclass, field

from halimede.hosting.routing.agreement import ShadowCounts


@dataclass(slots=True)
class InvocationCounts:
    """What has been counted since it was last taken. The hot path adds to plain numbers and lists.

    Times are in nanoseconds, one of each request or model.
    """

    sent: int = 0
    per_instance: float = 0.0
    answered: int = 0
    client_errors: int = 0
    server_errors: int = 0
    model_errors: int = 0
    hits: int = 0
    placed: int = 0
    captured: int = 0
    capture_uploaded: int = 0
    capture_too_large: int = 0
    capture_dropped: int = 0
    capture_upload_failures: int = 0
    model_ns: list[int] = field(default_factory=list)
    overhead_ns: list[int] = field(default_factory=list)
    wait_ns: list[int] = field(default_factory=list)
    download_ns: list[int] = field(default_factory=list)
    load_ns: list[int] = field(default_factory=list)
    unload_ns: list[int] = field(default_factory=list)
    shadow: ShadowCounts = field(default_factory=ShadowCounts)

    def add(self, other: "InvocationCounts") -> None:
        """Count what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class CountingMeter:
    """Counts the invocations of a variant, and what becomes of its models (`InvocationMeter`, `ModelMeter`)."""

    def __init__(self) -> None:
        self._counts = InvocationCounts()

    def take(self) -> InvocationCounts:
        """What has been counted since this was last called."""
        counts, self._counts = self._counts, InvocationCounts()
        return counts

    def add(self, counts: InvocationCounts) -> None:
        """Count what has been counted elsewhere."""
        self._counts.add(counts)

    @property
    def shadow(self) -> ShadowCounts:
        """Where copies of other variants' requests are counted that come here."""
        return self._counts.shadow

    # InvocationMeter

    def sent(self, instances: int) -> None:
        """A request is on its way to one of so many instances."""
        counts = self._counts
        counts.sent += 1
        if instances:
            counts.per_instance += 1 / instances

    def ended(self, status: int, model_ns: int, overhead_ns: int, *, model_error: bool) -> None:
        """A request has been answered."""
        counts = self._counts
        counts.answered += 1
        counts.model_errors += model_error
        if status >= 400:
            if status >= 500:
                counts.server_errors += 1
            else:
                counts.client_errors += 1
        if model_ns:
            counts.model_ns.append(model_ns)
        counts.overhead_ns.append(overhead_ns)

    def placed(self, wait_ns: int, *, cache_hit: bool) -> None:
        """A request for one of many models has found it."""
        counts = self._counts
        counts.placed += 1
        counts.hits += cache_hit
        if not cache_hit:
            counts.wait_ns.append(wait_ns)

    # CaptureMeter

    def captured(self, count: int) -> None:
        """So many records are on disk."""
        self._counts.captured += count

    def capture_too_large(self) -> None:
        """A record was left out because of its size."""
        self._counts.capture_too_large += 1

    def capture_dropped(self, count: int) -> None:
        """So many records were lost, as there was no room for them in memory or on the disk."""
        self._counts.capture_dropped += count

    # ModelMeter

    def downloaded(self, duration_ns: int) -> None:
        """An archive was fetched and extracted."""
        self._counts.download_ns.append(duration_ns)

    def loaded(self, duration_ns: int) -> None:
        """An instance has loaded a model."""
        self._counts.load_ns.append(duration_ns)

    def unloaded(self, duration_ns: int) -> None:
        """An instance has unloaded a model."""
        self._counts.unload_ns.append(duration_ns)
