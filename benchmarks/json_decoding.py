"""Decoding a JSON request of one image: the server's codec, and the libraries below it on the same bytes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import orjson

from benchmarks.processes import cores, pinned
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.config.model_config_pb2 import DataType, ModelConfig
from halimede.config.signature import Signature
from halimede.frontends.http.codec.request import RequestDecoder

SHAPE = (1, 3, 224, 224)
MAX_INPUT_BYTES = 64 * 2**20


def workloads() -> list[Workload]:
    """One: the time for a request of 3×224×224 numbers."""
    return [Workload("json", "ms", Compare.AT_MOST, 0.75, image)]


@contextmanager
def image(seconds: float) -> Iterator[Sides]:
    """Bytes to a tensor, in this process, on one core."""
    numbers = np.random.default_rng(0).random(SHAPE, np.float32)
    tensor = {"name": "image", "datatype": "FP32", "shape": SHAPE, "data": numbers.ravel().tolist()}
    body = memoryview(orjson.dumps({"inputs": [tensor]}))
    config = ModelConfig(name="image", max_batch_size=1)
    config.input.add(name="image", data_type=DataType.TYPE_FP32, dims=SHAPE[1:])
    decoder, signature = RequestDecoder(MAX_INPUT_BYTES), Signature.from_config(config)

    def ours() -> object:
        return decoder.decode(body, None, "image", signature)

    def limit() -> object:
        return np.array(orjson.loads(body)["inputs"][0]["data"], np.float32)

    with pinned(cores()[0]):
        yield Sides(lambda: timed(ours, seconds), lambda: timed(limit, seconds))


def timed(action: Callable[[], object], seconds: float) -> Sample:
    """The mean time of the action, repeated for so long, in ms."""
    started, cpu, runs = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        action()
        runs += 1
    return Sample(elapsed / runs * 1e3, (time.process_time() - cpu) / runs * 1e6)
