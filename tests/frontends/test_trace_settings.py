import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.engine.engine import Engine
from halimede.engine.tracing.settings import TraceConfig
from halimede.engine.tracing.tracing import Tracing
from halimede.frontends.http.trace_changes import read_trace_changes, trace_document
from halimede.frontends.trace_settings import change, document
from tests.engine.tracing.exporters import KeepingExporter
from tests.frontends.grpc.service_fakes import FakeEngine, FakeModel

NAMES = ("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.integers().map(str)
    | st.sampled_from(["OFF", "TENSORS"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def engine(exporter: KeepingExporter | None = None) -> Engine:
    made = FakeEngine(FakeModel())
    made.tracing = Tracing(TraceConfig(file="f"), exporter or KeepingExporter())
    return cast(Engine, made)


def settings(of: Engine, model: str = "") -> Any:
    return json.loads(trace_document(document(of, model)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "identity"]), st.dictionaries(st.sampled_from(NAMES), VALUES) | VALUES)
    )
)
def test_any_document_changes_settings_to_what_can_be_traced_or_is_refused(
    changes: list[tuple[str, Any]],
) -> None:
    served = engine()
    for model, asked in changes:
        before = settings(served, model)
        try:
            change(served, model, read_trace_changes(asked))
        except (InvalidArgumentError, UnsupportedError):
            assert settings(served, model) == before
            continue
        after = settings(served, model)
        assert 0 <= int(after["trace_rate"]) < 1 << 32
        assert -1 <= int(after["trace_count"]) < 1 << 31
        assert 0 <= int(after["log_frequency"]) < 1 << 32
        if after != before and after["trace_level"] != ["OFF"]:
            assert "0" not in (after["trace_rate"], after["trace_count"])


def test_a_name_may_be_there_more_than_once() -> None:
    assert trace_document([("a", "1"), ("a", "2"), ("b", ["3"])]) == b'{"a":"1","a":"2","b":["3"]}'


def test_further_settings_of_the_mode_come_last() -> None:
    exporter = KeepingExporter()
    exporter.options = (("url", "http://host"), ("resource", "a=b"))
    assert document(engine(exporter), "")[-3:] == [
        ("trace_mode", "triton"),
        ("url", "http://host"),
        ("resource", "a=b"),
    ]
