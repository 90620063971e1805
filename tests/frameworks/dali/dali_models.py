"""Pipelines to serve, written into model directories, and images to send."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.pipeline import Pipeline

from halimede.backends.base import BackendOptions, ModelSource
from halimede.config.parse import parse_text
from halimede.core.tensors import Array
from tests.backends.helpers import Loaded

DALI = 'backend: "dali"\n'


def serialized(
    define: Callable[[], Any], *, batch_size: int = 8, num_threads: int = 1, **arguments: object
) -> bytes:
    """The pipeline that the function defines."""
    make = pipeline_def(batch_size=batch_size, num_threads=num_threads, device_id=None, **arguments)(define)
    data: bytes = make().serialize()
    return data


def encoded() -> Any:
    """The input of image files, each of its own length."""
    return fn.external_source(name="IMAGE", dtype=types.UINT8, ndim=1)


def decoded() -> Any:
    """Images as they are."""
    return fn.decoders.image(encoded(), output_type=types.RGB)


def resized() -> Any:
    """Images of one size."""
    return fn.resize(decoded(), resize_x=4, resize_y=3)


def doubled() -> Any:
    """Numbers, times two."""
    return fn.external_source(name="X", dtype=types.FLOAT, ndim=1) * 2


IMAGES = {"output_dtype": types.UINT8, "output_ndim": 3}
NUMBERS = {"output_dtype": types.FLOAT, "output_ndim": 1}


def decoder() -> bytes:
    """A pipeline that gives images as they are."""
    return serialized(decoded, **IMAGES)


def resizer() -> bytes:
    """A pipeline that gives images of one size."""
    return serialized(resized, **IMAGES)


def doubler() -> bytes:
    """A pipeline that doubles numbers."""
    return serialized(doubled, **NUMBERS)


def write(directory: Path, pipeline: bytes | str, filename: str = "", name: str = "m") -> Path:
    """The directory of a model with that pipeline: serialized, or the text of its module."""
    version = directory / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    if isinstance(pipeline, str):
        (version / (filename or "dali.py")).write_text(pipeline)
    else:
        (version / (filename or "model.dali")).write_bytes(pipeline)
    return directory / name


def source_of(directory: Path, pipeline: bytes | str, config_text: str = "") -> ModelSource:
    """The source of model `m` with that pipeline."""
    config = parse_text(DALI + config_text, "test")
    config.name = "m"
    return ModelSource("m", 1, write(directory, pipeline), config)


def load(
    directory: Path, pipeline: bytes | str, config_text: str = "", options: BackendOptions | None = None
) -> Loaded:
    """The model with that pipeline, loaded."""
    return Loaded(source_of(directory, pipeline, config_text), options)


def image(height: int, width: int, seed: int = 0) -> Array:
    """The pixels of an image."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def pnm(pixels: Array) -> Array:
    """An image file with these pixels, which loses none, as a request for one image: [1, bytes]."""
    height, width, _ = pixels.shape
    return np.frombuffer(b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes(), np.uint8)[np.newaxis]


def framework(pipeline: bytes, **inputs: list[Array]) -> list[list[Array]]:
    """What DALI itself gives: the samples of each output."""
    samples = next(iter(inputs.values()))
    made = Pipeline.deserialize(pipeline, batch_size=len(samples), num_threads=1, device_id=None)
    for name, values in inputs.items():
        made.feed_input(name, values)
    return [[np.asarray(output.at(index)) for index in range(len(samples))] for output in made.run()]
