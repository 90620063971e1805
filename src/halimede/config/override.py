"""The configuration of a load request, which is JSON."""

from typing import Any

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_json
from halimede.core.errors import InvalidArgumentError


class ConfigOverride:
    """A configuration to use instead of what lies on disk. It is parsed when it is first read, and only once.

    Parsing takes about a hundred times as long as reading a parsed one. Pickled, it is parsed.
    """

    __slots__ = ("_fault", "_message", "_text")

    def __init__(self, text: str) -> None:
        """The configuration that this JSON spells, if it does."""
        self._text: str | None = text
        self._message = b""
        self._fault = ""

    def read(self) -> ModelConfig:
        """The configuration, which the caller may change.

        Raises:
            InvalidArgumentError: it is not JSON, is not a model configuration, or is too large.
        """
        self._parse()
        if self._fault:
            raise InvalidArgumentError(self._fault)
        return ModelConfig.FromString(self._message)

    def _parse(self) -> None:
        text = self._text
        if text is None:
            return
        try:
            self._message = parse_json(text).SerializeToString()
        except InvalidArgumentError as error:
            self._fault = error.message
        self._text = None  # last, as several threads may do this at once

    def __getstate__(self) -> tuple[bytes, str]:
        self._parse()
        return self._message, self._fault

    def __setstate__(self, state: tuple[bytes, str]) -> None:
        self._text = None
        self._message, self._fault = state

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ConfigOverride) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(self.__getstate__())
