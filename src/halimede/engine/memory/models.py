"""What counting memory and making room see of the models."""

from collections.abc import Mapping
from typing import Protocol

from halimede.engine.served_model import ServedModel


class ModelState(Protocol):
    """One model that was to be loaded at some time. Lives on the event loop."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def models(self) -> Mapping[int, ServedModel]:
        """What answers requests, by version."""

    @property
    def loading(self) -> bool:
        """Whether versions are being loaded now."""

    @property
    def operations(self) -> int:
        """How many loads and unloads are under way or wait for their turn."""

    @property
    def snapshot(self) -> object | None:
        """What the last load saw on disk; None if a client brought the model, so that it lies on no disk."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The models that it sends requests to: none unless it is an ensemble."""

    @property
    def ahead(self) -> tuple[str, ...]:
        """The models that must be there before it is."""

    @property
    def waits(self) -> Mapping[str, int]:
        """The models whose load or unload it waits for while it is being loaded itself, and how often."""


class ModelStates(Protocol):
    """All models. Lives on the event loop."""

    @property
    def records(self) -> Mapping[str, ModelState]:
        """What became of each model that was to be loaded."""

    @property
    def stopping(self) -> bool:
        """Whether the server is shutting down."""
