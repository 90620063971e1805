"""What a request to load a model brings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any, Final

from halimede.config.override import ConfigOverride
from halimede.core.uploads import CodeUpload
from halimede.repository.overrides import LoadParameters, code_in

LARGE: Final = 2048
"""Bytes of a request that take about a millisecond to read, if they are a configuration; more are read elsewhere."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadRequest:
    """A request to load a model.

    Attributes:
        name: the model; "" if the request does not tell.
        parameters: as `lifecycle.load` takes them, with what was read of the configuration.
        code: what of them may be code, in words; "" for nothing.
    """

    name: str
    parameters: LoadParameters
    code: str

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, str | bytes]) -> "LoadRequest":
        """The request with these parameters."""
        read = {
            key: ConfigOverride(value) if key == "config" and isinstance(value, str) else value
            for key, value in parameters.items()
        }
        return cls(name, read, code_in(read))

    def __reduce__(self) -> Any:
        # files are not copied into the message to another process
        parameters = {
            key: PickleBuffer(value) if isinstance(value, bytes) else value
            for key, value in self.parameters.items()
        }
        return _received, (self.name, parameters, self.code)

    def check(self, upload: CodeUpload, peer: str) -> None:
        """Nothing, if a client at this address may send what it has sent.

        Raises:
            PermissionDeniedError: it may not.
        """
        if self.code:
            upload.check(peer, self.code)


def _received(name: str, parameters: Mapping[str, str | bytes | memoryview], code: str) -> LoadRequest:
    """The request that another process has sent."""
    values = {
        key: bytes(value) if isinstance(value, memoryview) else value for key, value in parameters.items()
    }
    return LoadRequest(name, values, code)
