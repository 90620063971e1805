"""Image files to what Inception v3 takes: 299 × 299 pixels of three channels, from -1 to 1."""

from nvidia import dali
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@dali.pipeline_def(batch_size=32, num_threads=4, device_id=None, output_dtype=types.FLOAT, output_ndim=3)
def preprocess() -> DataNode:
    file = fn.external_source(name="FILE", dtype=types.UINT8, ndim=1)
    image = fn.decoders.image(file, device="cpu", output_type=types.RGB)
    image = fn.resize(image, size=[299, 299])
    return fn.crop_mirror_normalize(image, output_layout="HWC", mean=[127.5], std=[127.5])
