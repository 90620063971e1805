"""Errors as workers number them: by the codes that Python models know, and those that only the server has."""

from halimede.core.errors import (
    AlreadyExistsError,
    CancelledError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)

_CODES: tuple[type[HalimedeError], ...] = (
    UnknownError,
    InternalError,
    NotFoundError,
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
    AlreadyExistsError,
    CancelledError,
)

ERRORS = (*_CODES, OutOfMemoryError)
"""By number. Those of `TritonError`'s codes come first; the others are of models that are the server's own code."""

_NUMBERS = {error.code: number for number, error in enumerate(_CODES)}


def code_number(error: HalimedeError) -> int:
    """The number of the error's code, which Python models know."""
    return _NUMBERS[error.code]


def error_number(error: HalimedeError) -> int:
    """The number of the error's kind, in `ERRORS`."""
    return ERRORS.index(OutOfMemoryError) if isinstance(error, OutOfMemoryError) else code_number(error)
