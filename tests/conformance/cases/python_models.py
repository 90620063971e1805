"""What Python models may do, and what becomes of those that go wrong."""

import json
from typing import Any

import numpy as np

from tests.conformance.asking import config, get, grpc_infer, index, infer, loaded, tensor
from tests.conformance.case import Case, case
from tests.conformance.differences import (
    AFTER_A_CRASH,
    CODE_OF_AN_ERROR,
    MISSING_OUTPUT,
    NO_EXECUTE,
    NO_NAME_OF_A_MODEL,
)
from tests.conformance.sources import CONFIG, IDENTITY, IMPORTS, completing, executing, initializing
from tests.conformance.steps import Step, Until

ANSWERS = (
    "error",
    "empty_error",
    "error_with_outputs",
    "raises",
    "raises_model_exception",
    "raises_nothing_said",
    "raises_lines",
    "number",
    "empty_list",
    "two_responses",
    "string_inside",
    "tuple_of_responses",
    "unknown_output",
    "unknown_output_too",
    "no_outputs",
    "other_datatype",
    "other_shape",
    "scalar",
    "strings",
    "same_object_changed",
    "strided",
    "big_endian",
    "not_an_array",
    "complex_numbers",
    "unknown_input",
    "asks_for_sender",
    "cancelled",
    "missing_method",
    "code:UNKNOWN",
    "code:INTERNAL",
    "code:NOT_FOUND",
    "code:INVALID_ARG",
    "code:UNAVAILABLE",
    "code:UNSUPPORTED",
    "code:ALREADY_EXISTS",
    "code:CANCELLED",
)
X = tensor("X", "INT32", [1, 2])


def answer(kind: str, **members: Any) -> Step:
    """An inference of `answers`."""
    return infer("answers", tensor("KIND", "BYTES", [kind]), **members)


def model(number: int, source: str, text: str = CONFIG) -> tuple[Step, ...]:
    """Load a model, look at it and ask it."""
    name = f"python_{number}"
    return loaded(
        name, text, source, index(name), config(name), infer(name, X), get(f"/v2/models/{name}/ready")
    )


def calls(**asked: Any) -> Step:
    """An inference of `calls`, which calls another model."""
    return infer("calls", tensor("CALL", "BYTES", [json.dumps(asked)]))


WITHOUT_EXECUTE = IMPORTS + "class TritonPythonModel:\n    def initialize(self, args):\n        pass\n"
SOURCES: dict[str, str | tuple[str, str]] = {
    "not Python": "this is no Python\n",
    "an empty file": "",
    "no class": IMPORTS,
    "a class of another name": IDENTITY.replace("TritonPythonModel", "Model"),
    "no execute": WITHOUT_EXECUTE,
    "an import that is missing": "import no_such_module\n" + IDENTITY,
    "an error while imported": IDENTITY + "\nraise ValueError('while imported')\n",
    "an exit while imported": IDENTITY + "\nraise SystemExit(3)\n",
    "initialize raises": initializing("        raise ValueError('not today')"),
    "initialize raises a TritonModelException": initializing(
        "        raise pb_utils.TritonModelException('not today')"
    ),
    "initialize raises without text": initializing("        raise RuntimeError"),
    "initialize raises in a function": initializing(
        "        self.inner()\n\n    def inner(self):\n        return 1 / 0"
    ),
    "initialize without arguments": initializing("        pass").replace(
        "def initialize(self, args)", "def initialize(self)"
    ),
    "initialize exits": initializing("        import sys\n        sys.exit(4)"),
    "initialize returns something": initializing("        return 3"),
    "arguments of initialize": IMPORTS.replace("import json", "import json as js")
    + "class TritonPythonModel:\n    def initialize(self, args):\n        self.seen = ','.join(sorted(args)) + ' ' + args['model_instance_name'] + ' ' + args['model_instance_kind'] + ' ' + args['model_instance_device_id'] + ' ' + args['model_version'] + ' ' + args['model_name'] + ' ' + str(sorted(js.loads(args['model_config'])))\n\n    def execute(self, requests):\n        raise pb_utils.TritonModelException(self.seen)\n",
    "execute with another argument": IMPORTS
    + "class TritonPythonModel:\n    def execute(self):\n        return []\n",
    "a syntax error": IDENTITY + "\n    def broken(:\n",
    "a tab among spaces": IDENTITY + "\tx = 1\n",
    "completes nothing": completing("        return auto_complete_model_config"),
    "completes None": completing("        return None"),
    "completion raises": completing("        raise ValueError('cannot complete')"),
    "completes an input": completing(
        "        auto_complete_model_config.add_input({'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [1]})\n        return auto_complete_model_config"
    ),
    "completes the same input": completing(
        "        auto_complete_model_config.add_input({'name': 'X', 'data_type': 'TYPE_INT32', 'dims': [-1]})\n        return auto_complete_model_config"
    ),
    "completes the input with another type": completing(
        "        auto_complete_model_config.add_input({'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [-1]})\n        return auto_complete_model_config"
    ),
    "completes the input with other dims": completing(
        "        auto_complete_model_config.add_input({'name': 'X', 'data_type': 'TYPE_INT32', 'dims': [3]})\n        return auto_complete_model_config"
    ),
    "completes an input without type": completing(
        "        auto_complete_model_config.add_input({'name': 'Y', 'dims': [3]})\n        return auto_complete_model_config"
    ),
    "completes an input without name": completing(
        "        auto_complete_model_config.add_input({'data_type': 'TYPE_FP32', 'dims': [3]})\n        return auto_complete_model_config"
    ),
    "completes an input with unknown members": completing(
        "        auto_complete_model_config.add_input({'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [3], 'other': 1})\n        return auto_complete_model_config"
    ),
    "completes an input of unknown type": completing(
        "        auto_complete_model_config.add_input({'name': 'Y', 'data_type': 'TYPE_X', 'dims': [3]})\n        return auto_complete_model_config"
    ),
    "completes an output": completing(
        "        auto_complete_model_config.add_output({'name': 'Z', 'data_type': 'TYPE_FP32', 'dims': [1]})\n        return auto_complete_model_config"
    ),
    "completes an output of another type": completing(
        "        auto_complete_model_config.add_output({'name': 'OUT', 'data_type': 'TYPE_FP32', 'dims': [-1]})\n        return auto_complete_model_config"
    ),
    "completes a batch size": completing(
        "        auto_complete_model_config.set_max_batch_size(4)\n        return auto_complete_model_config"
    ),
    "completes a negative batch size": completing(
        "        auto_complete_model_config.set_max_batch_size(-4)\n        return auto_complete_model_config"
    ),
    "completes dynamic batching": completing(
        "        auto_complete_model_config.set_max_batch_size(4)\n        auto_complete_model_config.set_dynamic_batching()\n        return auto_complete_model_config"
    ),
    "completes a transaction policy": completing(
        "        auto_complete_model_config.set_model_transaction_policy(dict(decoupled=True))\n        return auto_complete_model_config"
    ),
    "completes a wrong transaction policy": completing(
        "        auto_complete_model_config.set_model_transaction_policy(dict(other=True))\n        return auto_complete_model_config"
    ),
    "completes another batch size": (
        completing(
            "        auto_complete_model_config.set_max_batch_size(4)\n        return auto_complete_model_config"
        ),
        CONFIG + "max_batch_size: 8",
    ),
    "completes all": (
        completing(
            "        auto_complete_model_config.add_input({'name': 'X', 'data_type': 'TYPE_INT32', 'dims': [-1]})\n        auto_complete_model_config.add_output({'name': 'OUT', 'data_type': 'TYPE_INT32', 'dims': [-1]})\n        auto_complete_model_config.set_max_batch_size(0)\n        return auto_complete_model_config"
        ),
        'backend: "python"',
    ),
    "prints": executing("        print('printed')\n        raise ValueError('after printing')"),
    "an instance that finalizes with an error": IDENTITY
    + "\n    def finalize(self):\n        raise ValueError('while finalized')\n",
    "logs": executing(
        "        pb_utils.Logger.log_info('x')\n        pb_utils.Logger.log_warn('y')\n        pb_utils.Logger.log('z', pb_utils.Logger.VERBOSE)\n        raise ValueError('after logging')"
    ),
    "logs a number": executing("        pb_utils.Logger.log_info(3)"),
    "versions of names": executing(
        "        raise ValueError(','.join(sorted(name for name in dir(pb_utils) if name[0].isupper() and not name.startswith('TRITON'))))"
    ),
    "a tensor of text": executing("        pb_utils.Tensor('X', 'text')"),
    "a tensor without name": executing(
        "        pb_utils.Tensor('', np.zeros(1, np.int32))\n        raise ValueError('made')"
    ),
    "a tensor of unicode": executing(
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array(['a']))])]"
    ),
    "a response without tensors": executing(
        "        pb_utils.InferenceResponse()\n        raise ValueError('made')"
    ),
    "a response of no list": executing(
        "        pb_utils.InferenceResponse(pb_utils.Tensor('OUT', np.zeros(1, np.int32)))"
    ),
    "an error that is no TritonError": executing("        pb_utils.InferenceResponse(error='text')"),
    "a TritonError of a wrong code": executing("        pb_utils.TritonError('x', 'y')"),
    "the code of a TritonError": executing(
        "        plain, code = pb_utils.TritonError('x'), pb_utils.TritonError('x', pb_utils.TritonError.NOT_FOUND)\n"
        "        raise ValueError(f'{int(plain.code())} {int(code.code())}')"
    ),
    "the text of a tensor": executing(
        "        t = pb_utils.Tensor('X', np.zeros((2, 1), np.float16))\n        raise ValueError(f'{t.name()} {t.shape()} {t.is_cpu()}')"
    ),
    "an inference request without model": executing(
        "        pb_utils.InferenceRequest(inputs=[], requested_output_names=[])"
    ),
    "an inference request without outputs": executing(
        "        pb_utils.InferenceRequest(model_name='add_sub', inputs=[])"
    ),
    "datatypes": executing(
        "        raise ValueError(f\"{pb_utils.triton_string_to_numpy('TYPE_FP16')} {pb_utils.triton_string_to_numpy('TYPE_STRING')} {pb_utils.triton_string_to_numpy('TYPE_BOOL')}\")"
    ),
    "an unknown input and output by name": executing(
        "        m = json.loads('{\"input\": [], \"output\": []}')\n        raise ValueError(f\"{pb_utils.get_input_config_by_name(m, 'X')} {pb_utils.get_output_config_by_name(m, 'X')}\")"
    ),
    "a response sender of a model that is not decoupled": executing(
        "        s = requests[0].get_response_sender()\n        s.send(pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, np.int32))]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n        return None"
    ),
}
CRASHING = executing(
    """        import os
        crashed = os.path.join(os.path.dirname(__file__), "crashed")
        if not os.path.exists(crashed):
            open(crashed, "w").close()
            os._exit(5)
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]"""
)
EXITING = executing("        import os\n        os._exit(5)")
READY_AGAIN = Until(get("/v2/models/exiting/ready"), lambda answer: answer["status"] == 200)
"""The model is ready all the time in 2.51; here, not until its new process runs, as in later versions."""
ADD = [["INPUT0", [[1, 2, 3, 4]], "float32"], ["INPUT1", [[1, 1, 1, 1]], "float32"]]
BLS: dict[str, dict[str, Any]] = {
    "sums": {"model": "add_sub", "inputs": ADD, "outputs": ["OUTPUT0", "OUTPUT1"]},
    "one output": {"model": "add_sub", "inputs": ADD, "outputs": ["OUTPUT1"]},
    "no outputs": {"model": "add_sub", "inputs": ADD},
    "an unknown output": {"model": "add_sub", "inputs": ADD, "outputs": ["OTHER"]},
    "an unknown model": {"model": "unknown", "outputs": ["X"]},
    "an unknown version": {"model": "add_sub", "inputs": ADD, "outputs": ["OUTPUT0"], "model_version": 7},
    "a version": {
        "model": "versions",
        "inputs": [["X", [1, 2], "int32"]],
        "outputs": ["OUT"],
        "model_version": 1,
    },
    "an input missing": {"model": "add_sub", "inputs": ADD[:1], "outputs": ["OUTPUT0"]},
    "a wrong shape": {
        "model": "add_sub",
        "inputs": [["INPUT0", [[1]], "float32"], ADD[1]],
        "outputs": ["OUTPUT0"],
    },
    "a wrong type": {
        "model": "add_sub",
        "inputs": [["INPUT0", [[1, 2, 3, 4]], "int32"], ADD[1]],
        "outputs": ["OUTPUT0"],
    },
    "an error": {"model": "answers", "inputs": [["KIND", ["error"], "bytes"]], "outputs": ["OUT"]},
    "an error with a code": {
        "model": "answers",
        "inputs": [["KIND", ["code:NOT_FOUND"], "bytes"]],
        "outputs": ["OUT"],
    },
    "a model that raises": {
        "model": "answers",
        "inputs": [["KIND", ["raises"], "bytes"]],
        "outputs": ["OUT"],
    },
    "an ensemble": {
        "model": "chain",
        "inputs": [["A", [[1, 2, 3, 4]], "float32"], ["B", [[1, 1, 1, 1]], "float32"]],
        "outputs": ["C"],
    },
    "strings without batch dimension": {
        "model": "upper",
        "inputs": [["S", ["a", "b"], "bytes"]],
        "outputs": ["OUT"],
    },
    "a decoupled model": {"model": "repeat", "inputs": [["IN", [1, 2], "int32"]], "outputs": ["OUT"]},
    "a decoupled model, decoupled": {
        "model": "repeat",
        "inputs": [["IN", [1, 2], "int32"]],
        "outputs": ["OUT"],
        "decoupled": True,
    },
    "a plain model, decoupled": {
        "model": "add_sub",
        "inputs": ADD,
        "outputs": ["OUTPUT0"],
        "decoupled": True,
    },
    "an unknown model, decoupled": {"model": "unknown", "outputs": ["X"], "decoupled": True},
    "request id and correlation id": {
        "model": "asked",
        "inputs": [["X", [1], "int32"]],
        "outputs": ["SEEN"],
        "request_id": "7",
        "correlation_id": 3,
        "flags": 1,
    },
    "timeout": {"model": "asked", "inputs": [["X", [1], "int32"]], "outputs": ["SEEN"], "timeout": 1000000},
    "parameters": {
        "model": "asked",
        "inputs": [["X", [1], "int32"]],
        "outputs": ["SEEN"],
        "parameters": {"a": 1, "b": "c", "d": True},
    },
    "parameters of a wrong type": {
        "model": "asked",
        "inputs": [["X", [1], "int32"]],
        "outputs": ["SEEN"],
        "parameters": {"a": [1]},
    },
    "an empty model name": {"model": "", "outputs": ["X"]},
    "a model name that is a number": {"model": 3, "outputs": ["X"]},
    "ready": {"do": "ready", "model": "add_sub"},
    "ready of an unknown model": {"do": "ready", "model": "unknown"},
    "ready of a version": {"do": "ready", "model": "versions", "version": "3"},
    "ready of another version": {"do": "ready", "model": "versions", "version": "2"},
    "load": {"do": "load", "model": "add_sub"},
    "load of an unknown model": {"do": "load", "model": "unknown"},
    "load with a wrong configuration": {"do": "load", "model": "add_sub", "config": "nonsense"},
    "load of ...": {"do": "load", "model": "..."},
    "load with a file that is no bytes": {
        "do": "load",
        "model": "add_sub",
        "config": "{}",
        "files": {"file:1/model.py": "x"},
    },
    "unload of an unknown model": {"do": "unload", "model": "unknown"},
}

BLS_MEANT = {"an error with a code": CODE_OF_AN_ERROR, "load of ...": NO_NAME_OF_A_MODEL}

CASES: list[Case] = [
    *(case(f"answers: {kind}", answer(kind)) for kind in ANSWERS),
    *(
        case(f"gRPC answers: {kind}", grpc_infer("answers", ("KIND", np.array([kind.encode()], np.object_))))
        for kind in ANSWERS
        if kind.startswith("code") or kind in ("raises", "unknown_output")
    ),
    case("answers: an id in the error", answer("error", id="my id")),
    case("answers: only the other output asked for", answer("other_order", outputs=[{"name": "SECOND"}])),
    case(
        "answers: an output asked for that is not sent",
        answer("cancelled", outputs=[{"name": "SECOND"}]),
        differs=MISSING_OUTPUT,
    ),
    *(
        case(
            name,
            *(model(number, *source) if isinstance(source, tuple) else model(number, source)),
            differs=NO_EXECUTE if name == "no execute" else None,
        )
        for number, (name, source) in enumerate(SOURCES.items())
    ),
    case(
        "a crash, and the next request",
        *loaded("crashing", CONFIG, CRASHING, infer("crashing", X), infer("crashing", X)),
        differs=AFTER_A_CRASH,
    ),
    case(
        "a model exits while it executes",
        *loaded("exiting", CONFIG, EXITING, infer("exiting", X), READY_AGAIN, index("exiting")),
    ),
    *(
        case(
            f"calls: {name}",
            calls(**asked),
            differs=BLS_MEANT.get(name),
        )
        for name, asked in BLS.items()
    ),
]
