import logging
from pathlib import Path

import onnx
import pytest

from halimede.backends.onnx.log import log_message
from tests.support.onnx_models import add_sub, write_model
from tests.support.server import start_server


def with_unused_weight() -> onnx.ModelProto:
    """A model that ONNX Runtime warns of."""
    model = add_sub()
    model.graph.initializer.append(
        onnx.helper.make_tensor("unused_weight", onnx.TensorProto.FLOAT, [2], [1, 2])
    )
    return model


@pytest.mark.parametrize(
    ("severity", "level"),
    [(0, logging.DEBUG), (1, logging.DEBUG), (2, logging.WARNING), (3, logging.ERROR), (4, logging.ERROR)],
)
def test_a_message_has_its_level_and_tells_the_model(
    severity: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "halimede"):
        log_message(severity, "onnxruntime", "digits", "graph.cc:1 F", "something")
        log_message(severity, "onnxruntime", "", "graph.cc:1 F", "else")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (level, "onnxruntime, model 'digits': something (graph.cc:1 F)"),
        (level, "onnxruntime: else (graph.cc:1 F)"),
    ]


def test_what_onnx_runtime_says_of_a_model_is_in_the_log(tmp_path: Path) -> None:
    write_model(tmp_path, "warned", with_unused_weight())
    with start_server(tmp_path) as server:
        line = next(line for line in server.log.splitlines() if "unused_weight" in line)
        assert line.startswith("W")
        assert "\"onnxruntime, model 'warned': Removing initializer 'unused_weight'." in line
        others = [
            line for line in server.log.splitlines() if line.startswith("W") and "unused_weight" not in line
        ]
        assert others == [], "defaults are no reason to warn"
        assert server.stop() == 0
