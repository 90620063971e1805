"""Forms of texts, checked with the compiler of OpenVINO GenAI itself.

The pipeline compiles a form in the step in which it first needs it. One that cannot be compiled fails this step, and
all later ones with it. So each form is compiled once before, by a pipeline of its own around a model that does nothing.
"""

from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import Any, Final

import numpy as np
import openvino
import openvino_genai
from openvino import opset13

from halimede.backends.language.structure import Structure, StructureKind
from halimede.backends.openvino_genai.native_errors import told_by
from halimede.core.errors import HalimedeError

_KEPT: Final = 1024
"""So many forms are remembered as good or bad."""

_MOST_S: Final = 1.0
"""Less than elsewhere, as the pipeline compiles a form again in a step, for which all texts wait."""


class GenAIGrammars:
    """Checks forms. Used by several threads.

    Args:
        tokenizer: an `openvino_genai.Tokenizer`.
        most_s: forms that take more seconds to compile are refused.
    """

    def __init__(self, tokenizer: Any, most_s: float = _MOST_S) -> None:
        self._tokenizer = tokenizer
        self._most_s = most_s
        self._lock = Lock()
        self._compiling = Lock()
        self._pipeline: Any = None
        self._known: OrderedDict[Structure, HalimedeError | None] = OrderedDict()

    def knows(self, structure: Structure) -> bool:
        """Whether a form was compiled before, or is known to be impossible."""
        with self._lock:
            return structure in self._known

    def check(self, structure: Structure) -> None:
        """Compile a form.

        Raises:
            InvalidArgumentError: it cannot be compiled, or takes too long.
        """
        with self._compiling:
            if not self.knows(structure):
                refusal = self._refusal(structure)
                with self._lock:
                    self._known[structure] = refusal
                    if len(self._known) > _KEPT:
                        self._known.popitem(last=False)
        with self._lock:
            refusal = self._known.get(structure)
        if refusal is not None:
            raise refusal.with_traceback(None)  # it may be raised many times

    def _refusal(self, structure: Structure) -> HalimedeError | None:
        """Why a form cannot be used; None if it can."""
        if self._pipeline is None:
            self._pipeline = _idle_pipeline(self._tokenizer)
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = 1
        config.structured_output_config = structured_output(structure)
        began = monotonic()
        try:
            self._pipeline.generate(openvino.Tensor(np.zeros((1, 1), np.int64)), config)
        except RuntimeError as error:
            return structure.refused(told_by(error))
        past = monotonic() - began
        if past > self._most_s:
            return structure.refused(
                f"compiling it took {past:.1f} s, and at most {self._most_s:g} s are allowed"
            )
        return None


def structured_output(structure: Structure) -> Any:
    """A form as the pipeline takes it."""
    config = openvino_genai.StructuredOutputConfig()
    match structure.kind:
        case StructureKind.JSON_SCHEMA:
            config.json_schema = structure.text
        case StructureKind.REGEX:
            config.regex = structure.text
        case StructureKind.GRAMMAR:
            config.grammar = structure.text
        case StructureKind.CHOICE:
            config.grammar = "root ::= " + " | ".join(map(_quoted, structure.choices))
    return config


def _quoted(text: str) -> str:
    """A text in a grammar."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(each, each) for each in text) + '"'


def _idle_pipeline(tokenizer: Any) -> Any:
    """A pipeline whose model says the same for all tokens."""
    size = max(tokenizer.get_vocab().values()) + 1
    inputs = {
        "input_ids": opset13.parameter([-1, -1], np.int64),
        "attention_mask": opset13.parameter([-1, -1], np.int64),
        "position_ids": opset13.parameter([-1, -1], np.int64),
        "beam_idx": opset13.parameter([-1], np.int32),
    }
    for name, parameter in inputs.items():
        parameter.output(0).get_tensor().set_names({name})
    last = opset13.constant(-1, dtype=np.int64)
    tokens = opset13.convert(opset13.unsqueeze(inputs["input_ids"], last), "f32")
    logits = opset13.multiply(tokens, opset13.constant(np.zeros((1, 1, size), np.float32)))
    logits.output(0).get_tensor().set_names({"logits"})
    model = openvino.Model([opset13.result(logits)], list(inputs.values()), "idle")
    with TemporaryDirectory() as directory:
        path = Path(directory) / "idle.xml"
        openvino.save_model(model, path, compress_to_fp16=False)
        weights = openvino.Tensor(np.fromfile(path.with_suffix(".bin"), np.uint8))
        return openvino_genai.LLMPipeline(
            path.read_text(), weights, tokenizer, "CPU",
            openvino_genai.GenerationConfig(), ATTENTION_BACKEND="SDPA",
        )  # fmt: skip
