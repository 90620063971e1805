import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import halimede
from halimede.core.errors import InternalError, InvalidArgumentError, NotFoundError, UnavailableError
from halimede.engine.engine import Engine
from tests.api import functions
from tests.support.onnx_models import FLOAT, build, write_model

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with `double` in ONNX, and `held`, whose requests wait in the queue for a minute."""
    directory = tmp_path_factory.mktemp("models")
    model = build(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (FLOAT, ["n", 2])},
        {"y": (FLOAT, ["n", 2])},
    )
    write_model(directory, "double", model)
    held = "max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 60000000 }"
    write_model(directory, "held", model, held)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[halimede.Server]:
    given = (functions.greet, functions.countdown, functions.here)
    with halimede.Server(given, model_repository=str(repository), server_id="ours") as server:
        yield server


def test_arrays_go_in_and_come_out(server: halimede.Server) -> None:
    responses = list(server.model("double").infer({"x": X}, request_id="one"))
    assert len(responses) == 1
    (response,) = responses
    assert response.outputs["y"].tolist() == [[2.0, 4.0]]
    assert (response.model, response.version, response.request_id) == ("double", 1, "one")
    assert (response.error, response.final) == (None, True)


def test_a_model_is_called_like_a_function(server: halimede.Server) -> None:
    assert server.model("double")(x=X)["y"].tolist() == [[2.0, 4.0]]
    assert server.model("greet")(name="you", times=2)["text"].tolist() == [b"hello you hello you "]


def test_lists_become_arrays(server: halimede.Server) -> None:
    assert server.model("double")(x=[[1, 2]])["y"].tolist() == [[2.0, 4.0]]


def test_only_wanted_outputs_come(server: halimede.Server) -> None:
    (response,) = server.model("greet").infer({"name": "you"}, outputs=["length"])
    assert {name: array.tolist() for name, array in response.outputs.items()} == {"length": [10]}


def test_a_decoupled_model_gives_many_responses(server: halimede.Server) -> None:
    responses = server.model("countdown").infer({"n": 3})
    assert [response.outputs["output"].item() for response in responses] == [3, 2, 1]
    with pytest.raises(ValueError, match="streams its responses"):
        server.model("countdown")(n=3)


def test_an_application_with_an_event_loop_is_not_held_up(server: halimede.Server) -> None:
    async def run() -> tuple[list[int], tuple[float, float]]:
        counted = [
            each.outputs["output"].item() async for each in server.model("countdown").async_infer({"n": 2})
        ]

        async def double(value: float) -> float:
            async for response in server.model("double").async_infer({"x": X * value}):
                return float(response.outputs["y"][0, 0])
            raise AssertionError

        return counted, await asyncio.gather(double(1.0), double(2.0))

    counted, doubled = asyncio.run(run())
    assert (counted, list(doubled)) == ([2, 1], [2.0, 4.0])


def test_many_threads_may_call(server: halimede.Server) -> None:
    model = server.model("double")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda value: model(x=X * value)["y"][0, 0], range(100)))
    assert answers == [2.0 * value for value in range(100)]


def test_errors_are_raised_or_part_of_the_response(server: halimede.Server) -> None:
    model = server.model("greet")
    with pytest.raises(InvalidArgumentError, match="name must not be empty"):
        model(name="")
    (response,) = model.infer({"name": ""}, raise_on_error=False)
    assert isinstance(response.error, InvalidArgumentError)
    assert response.outputs == {}


def test_what_a_request_gets_wrong_is_told(server: halimede.Server) -> None:
    double = server.model("double")
    with pytest.raises(NotFoundError, match="unknown model: 'doubel'"):
        server.model("doubel")(x=X)
    with pytest.raises(InvalidArgumentError, match=r"the model has no input 'xx'; did you mean 'x'\?"):
        double(x=X, xx=X)
    with pytest.raises(
        InvalidArgumentError, match=r"input 'x' is FP32; the array is complex128: convert it with"
    ):
        double(x=X.astype(np.complex128))
    with pytest.raises(InvalidArgumentError, match="input 'name' is BYTES; the array is float32"):
        server.model("greet")(name=X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'reqest_id'"):
        double.infer({"x": X}, reqest_id="one")


def test_a_request_may_be_cancelled(server: halimede.Server) -> None:
    responses = server.model("held").infer({"x": X}, raise_on_error=False)
    responses.cancel()
    (response,) = responses
    assert isinstance(response.error, halimede.HalimedeError)
    assert "cancel" in str(response.error)


def test_the_server_and_its_models_tell_of_themselves(server: halimede.Server) -> None:
    assert server.live()
    assert server.ready()
    assert server.metadata()["name"] == "ours"
    assert set(server.models()) == {"double", "held", "greet", "countdown", "here"}
    double = server.model("double")
    assert double.ready()
    assert double.metadata()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert double.config()["backend"] == "onnxruntime"
    before = double.statistics()["model_stats"][0]["inference_count"]
    double(x=X)
    assert double.statistics()["model_stats"][0]["inference_count"] == before + 1
    assert 'nv_inference_request_success{model="double",version="1"}' in server.metrics()
    assert not server.model("nothing").ready()


def test_models_come_and_go_when_they_are_asked_to(repository: Path) -> None:
    with halimede.Server(model_repository=repository, model_control_mode="explicit") as server:
        assert not server.model("double").ready()
        assert server.load("double")(x=X)["y"].tolist() == [[2.0, 4.0]]
        assert set(server.models(exclude_not_ready=True)) == {"double"}
        server.unload("double")
        with pytest.raises(NotFoundError):
            server.model("double")(x=X)
        with pytest.raises(halimede.HalimedeError, match="failed to load 'nothing'"):
            server.load("nothing")


def test_models_are_loaded_on_demand(repository: Path) -> None:
    with halimede.Server(model_repository=repository, model_control_mode="ondemand") as server:
        assert server.model("double")(x=X)["y"].tolist() == [[2.0, 4.0]]


def test_a_server_may_be_stopped_and_started_again(repository: Path) -> None:
    server = halimede.Server(
        model_repository=repository, model_control_mode="explicit", startup_models=["double"]
    )
    with pytest.raises(RuntimeError, match=r"the server is not started: call start\(\)"):
        server.model("double")
    for _ in range(2):
        with server:
            model = server.model("double")
            assert model(x=X)["y"].tolist() == [[2.0, 4.0]]
            with pytest.raises(RuntimeError, match="the server runs already"):
                server.start()
        assert not server.live()
        assert not server.ready()
        with pytest.raises(UnavailableError, match="the server does not run"):
            model(x=X)


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--model-repository must be specified"):
        halimede.Server().start()
    with pytest.raises(
        TypeError, match="there is no argument 'model_repositroy'; did you mean 'model_repository'"
    ):
        halimede.Server(model_repositroy="models")
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_text("nothing")
    with pytest.raises(RuntimeError, match="'broken': "):
        halimede.Server(model_repository=tmp_path).start()
    with halimede.Server(model_repository=tmp_path, exit_on_error=False) as server:
        assert not server.model("broken").ready()


@pytest.mark.parametrize("step", ["find", "demand"])
def test_a_call_that_fails_in_a_way_that_nobody_foresaw_is_answered(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    with halimede.Server(model_repository=repository, model_control_mode="ondemand") as server:

        async def fail_later(*_: object) -> None:
            raise RuntimeError("unforeseen")

        def fail(*_: object) -> None:
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(Engine, step, fail_later if step == "demand" else fail)
        with pytest.raises(InternalError, match="the server failed: RuntimeError"):
            server.model("double")(x=X)
        assert "a request for model 'double' failed" in caplog.messages
