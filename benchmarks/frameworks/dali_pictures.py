"""DALI: a pipeline that decodes pictures of any size and resizes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvidia import dali as nvidia_dali

from benchmarks.frameworks.framework import SIDES, Call, Size
from benchmarks.frameworks.inputs import picture

RESIZED = {Size.SMALL: 16, Size.LARGE: 224}
MAX_ROWS = 8

dali: Any = nvidia_dali
"""Its annotations are incomplete."""


def build(_kind: str, size: Size, directory: Path) -> None:
    pipeline(size, 1).serialize(filename=str(directory / "model.dali"))


def pipeline(size: Size, threads: int) -> Any:
    """From the bytes of pictures to their pixels."""

    @dali.pipeline_def(batch_size=MAX_ROWS, num_threads=threads, device_id=None)
    def pictures() -> object:
        data = dali.fn.external_source(device="cpu", name="DALI_INPUT_0", dtype=dali.types.UINT8, ndim=1)
        decoded = dali.fn.decoders.image(data, device="cpu", output_type=dali.types.RGB)
        side = RESIZED[size]
        return dali.fn.resize(decoded, resize_x=side, resize_y=side)

    return pictures(exec_pipelined=False, exec_async=False, prefetch_queue_depth=1)


def load(kind: str, size: Size, _directory: Path, threads: int) -> Callable[[int], Call]:
    built = pipeline(size, threads)
    built.build()
    data = np.frombuffer(picture(kind, SIDES[size]), np.uint8)

    def call_for(rows: int) -> Call:
        batch = [data] * rows

        def call() -> object:
            built.feed_input("DALI_INPUT_0", batch)
            (output,) = built.run()
            return output.as_array()

        return call

    return call_for
