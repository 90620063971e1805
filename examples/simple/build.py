"""Write the small models that the example scripts of Triton's clients talk to, under their names.

* `simple`, `simple_int8`, `simple_string`: OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1, of 16
  integers each; `simple_string` takes and gives them as text.
* `simple_identity`: gives text back.
* `custom_identity_int32`, `repeat_int32`, `square_int32`: backends of Halimede's own, without model files.
"""

import shutil
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent


def build(repository: Path) -> None:
    """Write the models into the repository."""
    files = {
        "simple": sum_and_difference(TensorProto.INT32),
        "simple_int8": sum_and_difference(TensorProto.INT8),
        "simple_string": sum_and_difference(TensorProto.STRING),
        "simple_identity": identity(),
    }
    for config in sorted(HERE.glob("*/config.pbtxt")):
        model = repository / config.parent.name
        (model / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(config, model / config.name)
        if config.parent.name in files:
            onnx.save(files[config.parent.name], model / "1" / "model.onnx")


def sum_and_difference(datatype: int) -> onnx.ModelProto:
    """A model that adds and subtracts [batch, 16] integers; strings are read as decimal numbers."""
    nodes: list[onnx.NodeProto] = []
    text = datatype == TensorProto.STRING
    operands = ["INPUT0", "INPUT1"]
    if text:
        operands = ["number0", "number1"]
        nodes += [
            helper.make_node("Cast", [f"INPUT{i}"], [operands[i]], to=TensorProto.INT32) for i in range(2)
        ]
    for index, operator in enumerate(("Add", "Sub")):
        result = f"result{index}" if text else f"OUTPUT{index}"
        nodes.append(helper.make_node(operator, operands, [result]))
        if text:
            nodes.append(helper.make_node("Cast", [result], [f"OUTPUT{index}"], to=TensorProto.STRING))
    return model_of(
        nodes,
        [helper.make_tensor_value_info(name, datatype, ["batch", 16]) for name in ("INPUT0", "INPUT1")],
        [helper.make_tensor_value_info(name, datatype, ["batch", 16]) for name in ("OUTPUT0", "OUTPUT1")],
    )


def identity() -> onnx.ModelProto:
    """A model that gives its strings [batch, n] back."""
    shape = ["batch", "n"]
    return model_of(
        [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
        [helper.make_tensor_value_info("INPUT0", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.STRING, shape)],
    )


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """A checked model of one graph."""
    graph = helper.make_graph(nodes, "simple", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
