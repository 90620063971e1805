"""The smallest useful model: a sum and a difference."""

from __future__ import annotations

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds and subtracts its inputs."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the datatypes of the outputs from the configuration.

        Args:
            args: strings: `model_config` (JSON), `model_name`, `model_version`, `model_repository` (the
                model's directory), `model_instance_name`, `model_instance_kind`, `model_instance_device_id`.
        """
        config = json.loads(args["model_config"])
        self.dtypes = [
            pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, name)["data_type"])
            for name in ("OUTPUT0", "OUTPUT1")
        ]

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        responses = []
        for request in requests:
            first = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            second = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [
                pb_utils.Tensor("OUTPUT0", (first + second).astype(self.dtypes[0])),
                pb_utils.Tensor("OUTPUT1", (first - second).astype(self.dtypes[1])),
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses

    def finalize(self) -> None:
        """Called once, when the model is unloaded."""
        print("add_sub is done")
