"""The OpenVINO file of a text model, from its inputs to the answer."""

from pathlib import Path

import openvino

from halimede.files.targets import TargetError
from halimede.files.text.bert import INPUTS
from halimede.files.text.checkpoint import TextModel
from halimede.files.text.onnx_encoder import check_inputs, head_of, source_output


def build_from_openvino(model: TextModel, source: Path, file: Path, output: str) -> tuple[str, ...]:
    """Write the OpenVINO model at `source`, completed to its answer, to `file`; the result is the names of its inputs.

    Raises:
        TargetError: it cannot be read, or has other inputs and outputs than text models have.
    """
    core = openvino.Core()
    try:
        encoder = core.read_model(source)
    except RuntimeError as error:
        raise TargetError(f"'{source}' is no OpenVINO model: {error}") from None
    inputs = tuple(each.any_name for each in encoder.inputs)
    check_inputs(source, inputs)
    ranks = {each.any_name: len(each.partial_shape) for each in encoder.outputs}
    taken = source_output(model, source, ranks)
    head = core.read_model(head_of(model, taken, output).SerializeToString())
    given = {
        taken: encoder.output(taken).node.input_value(0),
        INPUTS[1]: encoder.input(INPUTS[1]).node.output(0),
    }
    for parameter in head.get_parameters():
        parameter.output(0).replace(given[parameter.output(0).any_name])
    whole = openvino.Model(head.get_results(), encoder.get_parameters(), "text")
    openvino.save_model(whole, file, compress_to_fp16=False)
    return inputs
