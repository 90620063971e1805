"""Labels of classes: one a line, the line's number is the class."""

from pathlib import Path

from halimede.core.errors import HalimedeError, InternalError
from halimede.repository.layout import inside


def read_labels(directory: Path, filename: str) -> list[str]:
    """The labels in a file of the model, by class.

    Args:
        directory: the model's directory.
        filename: the file, relative to it (`output.label_filename`).

    Raises:
        InternalError: the file lies outside the directory, cannot be read or is not UTF-8 text.
    """
    try:
        text = inside(directory, filename).read_text("utf-8")
    except (OSError, UnicodeDecodeError, HalimedeError) as error:
        msg = f"failed to open text file for read {directory}/{filename.lstrip('/')}: {_reason(error)}"
        raise InternalError(msg) from error
    # str.splitlines would also split at form feeds and other separators that may be part of a label
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
