"""Python models that cases write into the repositories."""

IMPORTS = """import json
import time
import numpy as np
import triton_python_backend_utils as pb_utils

"""
IDENTITY = (
    IMPORTS
    + """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return responses
"""
)
IO = """
input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]
"""
CONFIG = 'backend: "python"' + IO


def completing(body: str) -> str:
    """A model whose `auto_complete_config` is this body, indented by eight spaces."""
    return (
        f"{IDENTITY}\n    @staticmethod\n    def auto_complete_config(auto_complete_model_config):\n{body}\n"
    )


def initializing(body: str) -> str:
    """A model whose `initialize` is this body, indented by eight spaces."""
    return f"{IDENTITY}\n    def initialize(self, args):\n{body}\n"


def executing(body: str) -> str:
    """A model whose `execute` is this body, indented by eight spaces."""
    return f"{IMPORTS}\nclass TritonPythonModel:\n    def execute(self, requests):\n{body}\n"
