import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def double(x):
    return {"output": 2 * x}


config = TritonConfig(http_port=int(sys.argv[1]), allow_grpc=False, allow_metrics=False)
with Triton(config=config) as triton:
    triton.bind(
        model_name="double",
        infer_func=double,
        inputs=[Tensor(name="x", dtype=np.float64, shape=(-1,))],
        outputs=[Tensor(name="output", dtype=np.float64, shape=(-1,))],
        config=ModelConfig(max_batch_size=64),
    )
    triton.serve()
