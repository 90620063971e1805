"""A model with metrics of its own."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Gives its values back, and counts them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Create the metrics; the other instances of the model ask for the same and share them."""
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.families = [
            pb_utils.MetricFamily(
                name="example_values", description="Values received", kind=pb_utils.MetricFamily.COUNTER
            ),
            pb_utils.MetricFamily(
                name="example_last_size",
                description="Number of values in the latest request",
                kind=pb_utils.MetricFamily.GAUGE,
            ),
            pb_utils.MetricFamily(
                name="example_value", description="The values", kind=pb_utils.MetricFamily.HISTOGRAM
            ),
        ]
        counter, gauge, histogram = self.families
        self.received = counter.Metric(labels=labels)
        self.last_size = gauge.Metric(labels=labels)
        self.value = histogram.Metric(labels=labels, buckets=[0.1, 1.0, 10.0])

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "VALUES")
            values = tensor.as_numpy()
            self.received.increment(values.size)
            self.last_size.set(values.size)
            for value in values:
                self.value.observe(float(value))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        pb_utils.Logger.log_info(f"values received so far: {self.received.value():g}")
        return responses
