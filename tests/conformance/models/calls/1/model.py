"""Calls another model as its input says, and gives what came of it as JSON."""

import json

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = json.loads(pb_utils.get_input_tensor_by_name(request, "CALL").as_numpy()[0])
        try:
            found = getattr(self, asked.pop("do", "infer"))(**asked)
        except Exception as error:
            found = {"raised": type(error).__name__, "text": str(error)}
        if isinstance(found, list) and any("error" in one for one in found):
            found = found[-1]
        if isinstance(found, dict) and {"raised", "error"} & found.keys():
            text = f"{found.get('raised', found.get('code'))} {found.get('text', found.get('error'))}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))
        text = np.array([json.dumps(found, sort_keys=True)], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("FOUND", text)])

    def infer(self, model="", inputs=(), outputs=(), decoupled=False, **options):
        tensors = [pb_utils.Tensor(name, self.array(values, dtype)) for name, values, dtype in inputs]
        call = pb_utils.InferenceRequest(
            model_name=model, inputs=tensors, requested_output_names=list(outputs), **options
        )
        if decoupled:
            return [self.told(one) for one in call.exec(decoupled=True)]
        return self.told(call.exec())

    def told(self, response):
        if response.has_error():
            return {"error": response.error().message(), "code": int(response.error().code())}
        return {
            one.name(): [[str(value) for value in one.as_numpy().reshape(-1)], list(one.as_numpy().shape)]
            for one in response.output_tensors()
        }

    def array(self, values, dtype):
        if dtype == "bytes":
            return np.array([one.encode() for one in values], np.object_)
        return np.array(values, dtype)

    def load(self, model, **options):
        pb_utils.load_model(model_name=model, **options)
        return {"ready": pb_utils.is_model_ready(model)}

    def unload(self, model):
        pb_utils.unload_model(model)
        return {}

    def ready(self, model, version=""):
        return {"ready": pb_utils.is_model_ready(model, version)}
