"""What is counted of a variant's invocations."""

from typing import Protocol


class InvocationMeter(Protocol):
    """Counts the invocations of one variant. Called on the event loop, for each request."""

    def sent(self, instances: int) -> None:
        """A request is on its way to one of so many instances."""

    def ended(self, status: int, model_ns: int, overhead_ns: int, *, model_error: bool) -> None:
        """A request has been answered.

        Args:
            status: what an instance has answered, or the client was told if that is no instance's answer; 500 if an
                instance gave no whole response.
            model_ns: from when it was sent to the instance until its response was complete.
            overhead_ns: the rest of the time that it was here.
            model_error: the instance answered something other than 2xx, or nothing.
        """

    def placed(self, wait_ns: int, *, cache_hit: bool) -> None:
        """A request for one of many models has found it; `wait_ns` is what it waited for that."""


class NoMeter:
    """Counts nothing."""

    def sent(self, instances: int) -> None:
        """Nothing."""

    def ended(self, status: int, model_ns: int, overhead_ns: int, *, model_error: bool) -> None:
        """Nothing."""

    def placed(self, wait_ns: int, *, cache_hit: bool) -> None:
        """Nothing."""


class ModelMeter(Protocol):
    """Counts what becomes of the models of one multi-model variant. Called on the event loop."""

    def downloaded(self, duration_ns: int) -> None:
        """An archive was fetched and extracted."""

    def loaded(self, duration_ns: int) -> None:
        """An instance has loaded a model."""

    def unloaded(self, duration_ns: int) -> None:
        """An instance has unloaded a model."""


class NoModelMeter:
    """Counts nothing."""

    def downloaded(self, duration_ns: int) -> None:
        """Nothing."""

    def loaded(self, duration_ns: int) -> None:
        """Nothing."""

    def unloaded(self, duration_ns: int) -> None:
        """Nothing."""
