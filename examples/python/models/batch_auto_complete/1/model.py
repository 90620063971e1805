"""A model without config.pbtxt that batches: what it takes and gives is said in Python."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds and subtracts its rows of four numbers."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        """Complete the configuration; called before the model is loaded."""
        for name in ("INPUT0", "INPUT1"):
            auto_complete_model_config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        for name in ("OUTPUT0", "OUTPUT1"):
            auto_complete_model_config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.set_max_batch_size(4)
        auto_complete_model_config.set_dynamic_batching()
        return auto_complete_model_config

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        responses = []
        for request in requests:
            first = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            second = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [
                pb_utils.Tensor("OUTPUT0", first + second),
                pb_utils.Tensor("OUTPUT1", first - second),
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
