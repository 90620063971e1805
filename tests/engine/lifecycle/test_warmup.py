from pathlib import Path
from time import thread_time_ns
from typing import cast

import numpy as np
import pytest

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.config.signature import Signature
from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnavailableError,
)
from halimede.core.requests import InferResponse
from halimede.core.tensors import encode_bytes
from halimede.engine.lifecycle import warmup
from halimede.engine.lifecycle.warmup import WarmUpPace, warm_up
from halimede.engine.statistics import ModelStatistics
from tests.backends.helpers import load, source_of
from tests.support import onnx_models

CONFIG = """
    backend: "any" max_batch_size: {batch}
    input {{ name: "A" data_type: {datatype} dims: {dims} }}
    output {{ name: "X" data_type: {datatype} dims: {dims} }}
    {policy}
    {samples}
"""


def sample(data: str, datatype: str = "TYPE_FP32", dims: str = "[2]", batch: int = 1, rest: str = "") -> str:
    return f"""
        model_warmup {{
            name: "first" batch_size: {batch} {rest}
            inputs {{ key: "A" value {{ data_type: {datatype} dims: {dims} {data} }} }}
        }}
    """


class Recorder(Instance):
    """Keeps the inputs of each batch that it runs."""

    def __init__(
        self,
        error: Exception | None = None,
        answers: int | None = None,
        response_error: HalimedeError | None = None,
    ) -> None:
        self.batches: list[list[object]] = []
        self._error = error
        self._answers = answers
        self._response_error = response_error

    def execute(self, batch: Batch) -> None:
        if self._error is not None:
            raise self._error
        array = batch.gather()["A"]
        self.batches.append(array.tolist())
        if batch.send is not None:
            for request in batch.requests:
                batch.send(request, InferResponse(error=self._response_error), False)
                batch.send(request, None, True)
            return
        count = len(batch.requests) if self._answers is None else self._answers
        batch.responses = [InferResponse() for _ in range(count)]


def run(
    directory: Path,
    samples: str,
    instance: Recorder,
    datatype: str = "TYPE_FP32",
    batch: int = 4,
    policy: str = "",
    file: bytes | None = None,
    dims: str = "[2]",
) -> list[list[object]]:
    """What the instance was given."""
    text = CONFIG.format(batch=batch, datatype=datatype, dims=dims, samples=samples, policy=policy)
    source = source_of(directory, text)
    if file is not None:
        (source.directory / "warmup").mkdir()
        (source.directory / "warmup" / "data").write_bytes(file)
    warm_up(source, Signature.from_config(source.config), instance, "m_0", ModelStatistics())
    return instance.batches


def test_zeros_run_once_as_one_batch_of_copies(tmp_path: Path) -> None:
    assert run(tmp_path, sample("zero_data: true", batch=3), Recorder()) == [[[0, 0]] * 3]


def test_count_repeats_the_batch(tmp_path: Path) -> None:
    assert run(tmp_path, sample("zero_data: true", rest="count: 3"), Recorder()) == [[[0, 0]]] * 3


def test_batch_size_zero_is_skipped(tmp_path: Path) -> None:
    assert run(tmp_path, sample("zero_data: true", batch=0), Recorder()) == []


def test_model_without_batching_takes_no_more_than_one_copy(tmp_path: Path) -> None:
    assert run(tmp_path, sample("zero_data: true", batch=1), Recorder(), batch=0) == [[0, 0]]
    instance = Recorder()
    each = "batch size 2 for 'm_0', max allowed is 0; "
    with pytest.raises(InvalidArgumentError, match=f"^failed to run warmup sample 'first': {each * 2}$"):
        run(tmp_path, sample("zero_data: true", batch=2), instance, batch=0)
    assert instance.batches == []


def test_file_gives_the_bytes(tmp_path: Path) -> None:
    data = np.array([1.5, -2], np.float32).tobytes()
    assert run(tmp_path, sample('input_data_file: "data"'), Recorder(), file=data) == [[[1.5, -2]]]


def test_file_of_strings_has_their_lengths(tmp_path: Path) -> None:
    samples = sample('input_data_file: "data"', "TYPE_STRING")
    data = encode_bytes([b"one", b"\xff"])
    assert run(tmp_path, samples, Recorder(), "TYPE_STRING", file=data) == [[[b"one", b"\xff"]]]


@pytest.mark.parametrize("data", ["zero_data: true", "random_data: true"])
def test_strings_are_empty(tmp_path: Path, data: str) -> None:
    assert run(tmp_path, sample(data, "TYPE_STRING"), Recorder(), "TYPE_STRING") == [[[b"", b""]]]


FLOATS = ("TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_BF16")


@pytest.mark.parametrize("number", [number for number in BY_NUMBER if number != 13])
def test_random_data_fits_every_datatype(tmp_path: Path, number: int) -> None:
    name = BY_NUMBER[number].config_name
    (batch,) = run(tmp_path, sample("random_data: true", name, "[100]"), Recorder(), name, dims="[100]")
    ([*values],) = cast(list[list[float]], batch)
    if name == "TYPE_BF16":  # the bits, of which those of an FP32 are the upper half
        values = (np.array(values, np.uint32) << 16).view(np.float32).tolist()
    limit = 1 if name in FLOATS else 2 if name == "TYPE_BOOL" else 100
    assert all(0 <= value < limit for value in values)
    assert max(values) >= limit / 2


DECOUPLED = "model_transaction_policy { decoupled: true }"


def test_decoupled_model_is_waited_for(tmp_path: Path) -> None:
    assert run(tmp_path, sample("zero_data: true", batch=2), Recorder(), policy=DECOUPLED) == [[[0, 0]] * 2]


@pytest.mark.parametrize("size", [1, 2])
def test_failure_of_each_request_of_a_decoupled_model_is_told(tmp_path: Path, size: int) -> None:
    instance = Recorder(response_error=InternalError("not today"))
    with pytest.raises(InvalidArgumentError) as caught:
        run(tmp_path, sample("zero_data: true", batch=size), instance, policy=DECOUPLED)
    assert caught.value.message == "failed to run warmup sample 'first': " + "not today; " * size


WHERE = r" \(model_warmup sample 'first'\)"
REQUEST = r"\[request id: <id_unknown>\] "


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            sample("zero_data: true", dims="[-1]"),
            f"warmup setting expects all variable-size dimensions are specified for input 'A'{WHERE}",
        ),
        (
            sample(""),
            (
                f"{REQUEST}warmup setting expects input 'A' to have input_data_type set: zero_data, random_data or "
                "input_data_file, in model_warmup sample 'first'"
            ),
        ),
        (
            sample("zero_data: true", "TYPE_INVALID"),
            f"{REQUEST}inference input 'A' data-type is '<invalid>', but model 'm' expects 'FP32'{WHERE}",
        ),
        (
            sample("zero_data: true", "TYPE_INT8"),
            f"{REQUEST}inference input 'A' data-type is 'INT8', but model 'm' expects 'FP32'{WHERE}",
        ),
        (
            sample("zero_data: true", dims="[3]"),
            rf"{REQUEST}unexpected shape for input 'A' for model 'm'. Expected \[-1,2\], got \[1,3\]. NOTE: .*{WHERE}",
        ),
        (
            'model_warmup { name: "first" batch_size: 1 }',
            rf"{REQUEST}expected 1 inputs but got 0 inputs for model 'm'. Got input\(s\) \[\], but missing .*{WHERE}",
        ),
    ],
)
def test_sample_that_is_no_request_of_the_model_is_refused(
    tmp_path: Path, samples: str, message: str
) -> None:
    instance = Recorder()
    with pytest.raises(InvalidArgumentError, match=f"^{message}$"):
        run(tmp_path, sample("zero_data: true").replace("first", "before") + samples, instance)
    assert instance.batches == []


def test_input_that_the_model_does_not_have_is_left_out_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = 'inputs { key: "B" value { data_type: TYPE_FP32 dims: [2] zero_data: true } }'
    assert run(tmp_path, sample("zero_data: true", rest=other), Recorder()) == [[[0, 0]]]
    assert "model_warmup sample 'first' of 'm' sets input 'B', which the model does not have" in caplog.text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "No such file or directory"),
        ("../1/x", "it must stay inside the model's directory 'warmup'"),
        ("/etc/passwd", "it must stay inside the model's directory 'warmup'"),
        ("", "Is a directory"),
    ],
)
def test_file_that_cannot_be_read_is_told_with_its_path(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InternalError) as caught:
        run(tmp_path, sample(f'input_data_file: "{name}"'), Recorder(), file=b"")
    assert caught.value.message == f"failed to open text file for read {tmp_path}/m/warmup/{name}: {why}"


def test_file_that_is_too_short_is_refused_and_one_that_is_longer_is_cut(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        run(tmp_path / "short", sample('input_data_file: "data"'), Recorder(), file=b"12345")
    assert caught.value.message == (
        "[request id: <id_unknown>] warmup setting expects 8 bytes, but the data provided from dataonly has 5 bytes"
    )
    data = np.array([1.5, -2, 7], np.float32).tobytes()
    assert run(tmp_path / "long", sample('input_data_file: "data"'), Recorder(), file=data) == [[[1.5, -2]]]


@pytest.mark.parametrize("error", [UnavailableError("not today"), InternalError("not today")])
def test_failure_is_told_once_for_each_request(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        run(tmp_path, sample("zero_data: true", batch=2), Recorder(error))
    assert caught.value.message == "failed to run warmup sample 'first': not today; not today; "


def test_batch_above_the_largest_one_fails(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        run(tmp_path, sample("zero_data: true", batch=5), Recorder())
    assert caught.value.message == (
        "failed to run warmup sample 'first': " + "batch size 5 for 'm_0', max allowed is 4; " * 5
    )


def test_want_of_memory_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemoryError, match=r"^failed to run warmup sample 'first': no room; $"):
        run(tmp_path, sample("zero_data: true"), Recorder(OutOfMemoryError("no room")))


def test_missing_responses_are_a_failure(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="the backend gave 1 responses to 2 requests; "):
        run(tmp_path, sample("zero_data: true", batch=2), Recorder(answers=1))


def test_onnx_model_runs_its_sample(tmp_path: Path) -> None:
    samples = sample("random_data: true", batch=3).replace('"A"', '"INPUT0"')
    model = load(tmp_path, samples, onnx_models.identity(dims=(2,)))
    statistics = ModelStatistics()
    warm_up(model.backend.source, model.signature, model.instance, "m_0", statistics)
    assert statistics.execution_count == 1
    assert statistics.inference_count == 3
    assert statistics.success.count == 3


def test_onnx_model_that_fails_on_its_sample_says_so(tmp_path: Path) -> None:
    samples = """
        model_warmup {
            name: "bad index" batch_size: 1
            inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [4] zero_data: true } }
            inputs { key: "INDEX" value { data_type: TYPE_INT64 dims: [1] input_data_file: "index" } }
        }
    """
    model = load(tmp_path, samples, onnx_models.gather_by_index())
    (tmp_path / "m" / "warmup").mkdir()
    (tmp_path / "m" / "warmup" / "index").write_bytes(np.array([9]).tobytes())
    with pytest.raises(
        InvalidArgumentError, match="failed to run warmup sample 'bad index': onnx runtime error 1: "
    ):
        warm_up(model.backend.source, model.signature, model.instance, "m_0", ModelStatistics())


def test_a_model_with_states_and_controls_is_warmed_up_and_keeps_nothing(tmp_path: Path) -> None:
    config = """
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
        sequence_batching {
            control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
            state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
        }
        model_warmup {
            name: "s" batch_size: 2 count: 2
            inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: [ 2 ] random_data: true } }
            inputs { key: "START" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } }
            inputs { key: "SUM_IN" value { data_type: TYPE_FP32 dims: [ 2 ] random_data: true } }
        }
    """
    model = load(tmp_path, config, onnx_models.restartable_accumulator())
    statistics = ModelStatistics(())
    warm_up(model.backend.source, model.signature, model.instance, "m_0", statistics)
    assert statistics.execution_count == 2
    assert model.instance.states is not None
    assert model.instance.states.byte_size == 0


def test_inputs_after_a_state_are_set_and_controls_that_the_sample_leaves_out_are_false(
    tmp_path: Path,
) -> None:
    config = """
        backend: "any" max_batch_size: 4
        input { name: "B" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
        sequence_batching {
            control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
            control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
            state { input_name: "A" output_name: "A_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
        }
        model_warmup {
            name: "first" batch_size: 2
            inputs { key: "A" value { data_type: TYPE_FP32 dims: [ 2 ] random_data: true } }
            inputs { key: "B" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }
            inputs { key: "END" value { data_type: TYPE_INT32 dims: [ 1 ] input_data_file: "end" } }
        }
    """
    source = source_of(tmp_path, config)
    (source.directory / "warmup").mkdir()
    (source.directory / "warmup" / "end").write_bytes(np.array([1], np.int32).tobytes())
    given: list[dict[str, object]] = []

    class Gatherer(Instance):
        """Keeps the inputs of each batch."""

        def execute(self, batch: Batch) -> None:
            given.append({name: array.tolist() for name, array in batch.gather().items()})
            batch.responses = [InferResponse() for _ in batch.requests]

    warm_up(source, Signature.from_config(source.config), Gatherer(), "m_0", ModelStatistics())
    assert given == [{"B": [[0, 0]] * 2, "START": [[0]] * 2, "END": [[1]] * 2}]


def repeated(count: int) -> str:
    """The configuration of a model whose only sample runs so often."""
    samples = sample("zero_data: true", rest=f"count: {count}")
    return CONFIG.format(batch=4, datatype="TYPE_FP32", dims="[2]", policy="", samples=samples)


def test_short_warm_ups_do_not_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_LONG_NS", 1 << 60)  # none is long, however slow the machine is
    pauses: list[float] = []
    pace = WarmUpPace(lambda: pauses.append(-1.0), pauses.append)
    source = source_of(
        tmp_path,
        CONFIG.format(
            batch=4,
            datatype="TYPE_FP32",
            dims="[2]",
            policy="",
            samples=sample("zero_data: true", rest="count: 1000"),
        ),
    )
    recorder = Recorder()
    warm_up(source, Signature.from_config(source.config), recorder, "m_0", ModelStatistics(), pace)
    pace.close()
    assert len(recorder.batches) == 1000
    assert pauses == []


def test_long_warm_ups_let_others_load_and_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_LONG_NS", 0)
    monkeypatch.setattr(warmup, "_TURN_NS", 0)
    told: list[str] = []
    pauses: list[float] = []
    source = source_of(
        tmp_path,
        CONFIG.format(
            batch=4,
            datatype="TYPE_FP32",
            dims="[2]",
            policy="",
            samples=sample("zero_data: true", rest="count: 5"),
        ),
    )

    def warm(pace: WarmUpPace) -> None:
        warm_up(source, Signature.from_config(source.config), Recorder(), "m_0", ModelStatistics(), pace)

    began = thread_time_ns()
    first = WarmUpPace(lambda: told.append("first"), pauses.append)
    warm(first)
    computed = (thread_time_ns() - began) / SECOND
    assert told == ["first"]
    assert len(pauses) == 5
    assert 0 < sum(pauses) <= 2 * computed  # twice as long as it has computed
    second = WarmUpPace(lambda: told.append("second"), pauses.append)
    warm(second)
    assert told == ["first", "second"]
    first.close()
    second.close()


def test_two_long_warm_ups_pause_for_twice_as_long_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_LONG_NS", 0)
    monkeypatch.setattr(warmup, "_TURN_NS", 0)
    times = iter(range(0, 100 * MILLISECOND, MILLISECOND))
    monkeypatch.setattr(warmup, "thread_time_ns", lambda: next(times))
    pauses: list[float] = []
    paces = [WarmUpPace(sleep=pauses.append) for _ in range(2)]
    for pace in (*paces, *paces):
        pace.begin()
        pace.end()
    assert pauses == [0.002, 0.004, 0.004, 0.004]
    paces[0].close()
    paces[1].begin()
    paces[1].end()
    assert pauses[-1] == 0.002
    paces[1].close()
