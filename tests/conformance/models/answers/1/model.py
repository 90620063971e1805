"""Does what its input names: errors of each kind, and responses that are wrong or unusual."""

import numpy as np

import triton_python_backend_utils as pb_utils


def tensor(name="OUT", values=(1.0,), dtype=np.float32):
    return pb_utils.Tensor(name, np.array(values, dtype))


class TritonPythonModel:
    def execute(self, requests):
        kind = pb_utils.get_input_tensor_by_name(requests[0], "KIND").as_numpy()[0].decode()
        if kind.startswith("code:"):
            code = getattr(pb_utils.TritonError, kind.removeprefix("code:"))
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked", code))]
        return getattr(self, kind)(requests)

    def error(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked"))]

    def empty_error(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(""))]

    def error_with_outputs(self, requests):
        return [pb_utils.InferenceResponse([tensor()], error=pb_utils.TritonError("as asked"))]

    def raises(self, requests):
        raise ValueError("raised by the model")

    def raises_model_exception(self, requests):
        raise pb_utils.TritonModelException("raised as a TritonModelException")

    def raises_nothing_said(self, requests):
        raise RuntimeError

    def raises_lines(self, requests):
        raise KeyError("first\nsecond")

    def none(self, requests):
        return None

    def number(self, requests):
        return 3

    def empty_list(self, requests):
        return []

    def two_responses(self, requests):
        return [pb_utils.InferenceResponse([tensor()])] * 2

    def none_inside(self, requests):
        return [None]

    def string_inside(self, requests):
        return ["text"]

    def tuple_of_responses(self, requests):
        return tuple(pb_utils.InferenceResponse([tensor()]) for _ in requests)

    def unknown_output(self, requests):
        return [pb_utils.InferenceResponse([tensor("UNKNOWN")])]

    def unknown_output_too(self, requests):
        return [pb_utils.InferenceResponse([tensor(), tensor("UNKNOWN")])]

    def no_outputs(self, requests):
        return [pb_utils.InferenceResponse([])]

    def other_datatype(self, requests):
        return [pb_utils.InferenceResponse([tensor(dtype=np.int64, values=(1,))])]

    def other_shape(self, requests):
        return [pb_utils.InferenceResponse([tensor(values=((1.0, 2.0), (3.0, 4.0)))])]

    def scalar(self, requests):
        return [pb_utils.InferenceResponse([tensor(values=5.0)])]

    def zero_elements(self, requests):
        return [pb_utils.InferenceResponse([tensor(values=())])]

    def twice_the_same(self, requests):
        return [pb_utils.InferenceResponse([tensor(), tensor(values=(2.0, 3.0))])]

    def other_order(self, requests):
        return [pb_utils.InferenceResponse([tensor("SECOND"), tensor()])]

    def strings(self, requests):
        return [pb_utils.InferenceResponse([tensor(values=(b"a",), dtype=np.object_)])]

    def unusual_floats(self, requests):
        values = (
            np.nan,
            np.inf,
            -np.inf,
            -0.0,
            1e-45,
            3.4028235e38,
            0.1,
            1e10,
            123456789.0,
            1.0,
            1e-7,
            16777216.0,
        )
        return [pb_utils.InferenceResponse([tensor(values=values)])]

    def same_object_changed(self, requests):
        first = np.array([1.0, 2.0], np.float32)
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", first)])
        return [response]

    def strided(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.arange(8, dtype=np.float32)[::2])])]

    def big_endian(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1.0, 2.0], ">f4"))])]

    def not_an_array(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", [1.0, 2.0])])]

    def complex_numbers(self, requests):
        return [pb_utils.InferenceResponse([tensor(dtype=np.complex64)])]

    def unknown_input(self, requests):
        missing = pb_utils.get_input_tensor_by_name(requests[0], "MISSING")
        return [pb_utils.InferenceResponse([tensor(values=(0.0 if missing is None else 1.0,))])]

    def exits(self, requests):
        raise SystemExit(3)

    def asks_for_sender(self, requests):
        requests[0].get_response_sender()
        return [pb_utils.InferenceResponse([tensor()])]

    def cancelled(self, requests):
        return [pb_utils.InferenceResponse([tensor(values=(float(requests[0].is_cancelled()),))])]
