"""Inputs as they are written on the command line: JSON, text, or files."""

import json
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from halimede.cli.infer.remote import Array, RemoteTensor
from halimede.core.datatypes import BYTES

_PICTURES: Final = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
_TEXT: Final = frozenset({".txt", ".md"})


def read_value(text: str, tensor: RemoteTensor) -> Array:
    """The array that a text stands for, of the tensor's datatype and of a shape that it may have.

    Args:
        text: JSON such as `[[1, 2]]`, a text for BYTES, or `@FILE`.
        tensor: the input.

    Raises:
        click.UsageError: it is none; the text says what would be right.
    """
    value = _from_file(Path(text[1:]), tensor) if text.startswith("@") else _from_text(text, tensor)
    return _fitted(_typed(value, tensor), tensor)


def _from_text(text: str, tensor: RemoteTensor) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        if tensor.datatype is BYTES:
            return text
        raise click.UsageError(
            f"--input {tensor.name}: '{text}' is no JSON; write numbers, such as {_example(tensor)}, or @FILE"
        ) from None
    if tensor.datatype is BYTES and not isinstance(value, (str, list)):
        return text
    return value


def _from_file(path: Path, tensor: RemoteTensor) -> Any:
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".json":
            return json.loads(path.read_bytes())
        if tensor.datatype is BYTES:
            content = path.read_bytes()
            return content.decode() if path.suffix in _TEXT else content
    except OSError as error:
        raise click.UsageError(f"--input {tensor.name}: cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--input {tensor.name}: '{path}' is no {path.suffix} file: {error}") from None
    if path.suffix.lower() in _PICTURES:
        return _picture(path, tensor)
    raise click.UsageError(
        f"--input {tensor.name}: '{path}' is no file that becomes {tensor.datatype}; write @FILE.npy, @FILE.json or a "
        "picture"
    )


def _picture(path: Path, tensor: RemoteTensor) -> Array:
    """The pixels, 0 to 255, in the size and order of the tensor's shape."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise click.UsageError(
            f"--input {tensor.name}: pictures need Pillow for {tensor.datatype}: pip install 'halimede[infer]'"
        ) from None
    shape = tensor.shape[-3:] if len(tensor.shape) >= 3 else (-1, *tensor.shape)[-2:]
    channels_first = len(shape) == 3 and shape[0] in (1, 3) and shape[2] not in (1, 3)
    if len(shape) == 3:
        channels = shape[0] if channels_first else shape[2]
        height, width = shape[1:] if channels_first else shape[:2]
    else:
        channels, (height, width) = 1, shape
    try:
        with Image.open(path) as opened:
            picture = opened.convert("L" if channels == 1 else "RGB")
    except OSError as error:
        raise click.UsageError(f"--input {tensor.name}: '{path}' is no picture: {error}") from None
    if height > 0 and width > 0 and picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    if len(shape) == 3 and pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return pixels.transpose(2, 0, 1) if channels_first else pixels


def _typed(value: Any, tensor: RemoteTensor) -> Array:
    if tensor.datatype is BYTES:
        array = np.asarray(value, np.object_)
        encoded = np.empty(array.size, np.object_)
        encoded[:] = [
            each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()
        ]
        return encoded.reshape(array.shape)
    try:
        array = np.asarray(value)
    except ValueError:
        raise click.UsageError(
            f"--input {tensor.name}: its rows are of different lengths; a tensor's are equal, such as "
            f"{_example(tensor)}"
        ) from None
    dtype = tensor.datatype.numpy
    fractions = array.dtype.kind == "f" and not np.array_equal(array, np.floor(array))
    if (
        array.dtype.kind not in "biuf"
        or (dtype.kind in "iu" and fractions)
        or (dtype.kind == "b" != array.dtype.kind)
    ):
        raise click.UsageError(
            f"--input {tensor.name}: {tensor.datatype} is wanted, such as {_example(tensor)}; got {_shown(value)}"
        )
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise click.UsageError(
                f"--input {tensor.name}: values of {tensor.datatype} are from {limits.min} to {limits.max}; got "
                f"{_shown(value)}"
            )
    return np.ascontiguousarray(array.astype(dtype))


def _fitted(array: Array, tensor: RemoteTensor) -> Array:
    """The array with sizes of 1 in front, as far as the shape has more dimensions."""
    wanted = tensor.shape
    missing = len(wanted) - array.ndim
    if missing > 0 and all(size in (-1, 1) for size in wanted[:missing]):
        array = array.reshape((1,) * missing + array.shape)
    fits = len(wanted) == array.ndim and all(
        size in (-1, given) for size, given in zip(wanted, array.shape, strict=True)
    )
    if not fits:
        raise click.UsageError(
            f"--input {tensor.name}: the shape is {list(array.shape)}, and the model takes {list(wanted)}, such as "
            f"{_example(tensor)}"
        )
    return array


def example(tensor: RemoteTensor) -> str:
    """`NAME=VALUE` for an input, as one may write it."""
    return f"{tensor.name}={_example(tensor)}"


def _example(tensor: RemoteTensor) -> str:
    sizes = [2 if size == -1 else size for size in tensor.shape]
    if tensor.shape and tensor.shape[0] == -1 and len(tensor.shape) > 1:
        sizes[0] = 1
    if np.prod(sizes, dtype=np.int64) > 16:
        return "@FILE.npy"
    element = "text" if tensor.datatype is BYTES else True if tensor.datatype.name == "BOOL" else 1
    if sizes in ([1], [1, 1]):
        return str(element).lower()
    return f"'{json.dumps(np.full(sizes, element, np.object_).tolist())}'"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
