"""Models for the console: numbers, pictures, classes, a stream, a sequence, and one that cannot be loaded."""

from pathlib import Path

_ADDER = """
backend: "identity" max_batch_size: 8
input [{ name: "numbers" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "same" data_type: TYPE_INT32 dims: [ -1 ] }]
"""
_CLASSIFIER = """
backend: "python" max_batch_size: 16
parameters { key: "isolation" value { string_value: "none" } }
input [{ name: "features" data_type: TYPE_FP32 dims: [ 4 ] }]
output [{ name: "scores" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }]
dynamic_batching { max_queue_delay_microseconds: 2000 preferred_batch_size: [ 4 ] }
instance_group [{ count: 2 kind: KIND_CPU }]
"""
_CLASSIFY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            features = pb_utils.get_input_tensor_by_name(request, "features").as_numpy()
            if (features < 0).any():
                error = pb_utils.TritonError("features must not be negative")
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            scores = np.exp(features - features.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("scores", scores)]))
        return responses
"""
_NEGATIVE = """
backend: "python" max_batch_size: 8
input [{ name: "picture" data_type: TYPE_UINT8 dims: [ 48, 48, 3 ] }]
output [
  { name: "negative" data_type: TYPE_UINT8 dims: [ 48, 48, 3 ] },
  { name: "size" data_type: TYPE_INT64 dims: [ 1 ] }
]
"""
_NEGATE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            picture = pb_utils.get_input_tensor_by_name(request, "picture").as_numpy()
            size = np.full((len(picture), 1), picture[0].size, np.int64)
            outputs = [pb_utils.Tensor("negative", 255 - picture), pb_utils.Tensor("size", size)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
_WRITER = """
backend: "python" model_transaction_policy { decoupled: true }
input [
  { name: "prompt" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "words" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }]
"""
_WRITE = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils

TEXT = "Halimede is a moon of Neptune that goes around it the other way in a little more than five years".split()


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            words = pb_utils.get_input_tensor_by_name(request, "words")
            for word in TEXT[: 20 if words is None else int(words.as_numpy()[0])]:
                text = pb_utils.Tensor("text", np.array([word + " "], object))
                sender.send(pb_utils.InferenceResponse([text]))
                time.sleep(0.02)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_BROKEN = 'backend: "onnxruntime" max_batch_size: 8\n'

MODELS = {
    "identity": (_ADDER, {}),
    "classifier": (_CLASSIFIER, {"1/model.py": _CLASSIFY, "labels.txt": "cat\ndog\nfox\nowl\n"}),
    "negative": (_NEGATIVE, {"1/model.py": _NEGATE}),
    "writer": (_WRITER, {"1/model.py": _WRITE}),
    "broken": (_BROKEN, {"1/model.onnx": "this is no model"}),
}


def write_models(directory: Path) -> None:
    """Write the repository."""
    for name, (config, files) in MODELS.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
        for path, text in files.items():
            (directory / name / path).write_text(text)
