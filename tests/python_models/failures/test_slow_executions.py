"""Executions that do not return: what the log, the metrics and the console say."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.python_models.support import FLOATS, IN_SERVER, Models, Stream, executing, kill
from tests.support.waiting import wait_until

LIMIT = 'parameters { key: "SLOW_EXECUTION_SECONDS" value { string_value: "0.2" } }\n'
ANSWER = (
    "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones(4, np.float32))]) for _ in requests]"
)


def waiting(how: str) -> str:
    """A model whose `execute` waits for a file of its directory."""
    return f"""
def until_released():
    while not os.path.exists(os.path.join(pb_utils.get_model_dir(), "released")):
        {how}


class TritonPythonModel:
    def execute(self, requests):
        until_released()
        {ANSWER}
"""


COROUTINE = f"""
async def until_released():
    while not os.path.exists(os.path.join(pb_utils.get_model_dir(), "released")):
        await asyncio.sleep(0.02)


class TritonPythonModel:
    async def execute(self, requests):
        await until_released()
        {ANSWER}
"""

MODELS = {
    "sleeping": waiting("time.sleep(0.02)"),
    "computing": waiting("pass"),
    "coroutine": COROUTINE,
}


@contextmanager
def one_request(models: Models, model: str) -> Iterator[None]:
    """A request is under way; it is released at the end, and answered."""
    stream = Stream(models)
    stream.send(model)
    try:
        yield
    finally:
        (models.repository / model / "1" / "released").touch()
        assert stream.take().error == ""
        stream.close()


def metric(models: Models, model: str) -> int:
    text = models.server.get("/metrics", models.server.metrics)[1].decode()
    (line,) = [
        line for line in text.splitlines() if line.startswith(f'halimede_slow_executions{{model="{model}"')
    ]
    return int(line.rpartition(" ")[2])


def told(models: Models, model: str) -> tuple[str, bool]:
    """What the console says of the instance, and whether it counts as slow."""
    models.http.get_model_repository_index()  # the console lists what the last look at the repository found
    snapshot = json.loads(models.server.get("/v2/console/snapshot")[1])
    (instance,) = next(each["instances"] for each in snapshot["models"] if each["name"] == model)
    return instance["reason"], instance["slow_s"] >= 0.2


@pytest.mark.parametrize("kind", ["sleeping", "computing", "coroutine"])
def test_an_execution_that_does_not_return_is_logged_with_its_stack(models: Models, kind: str) -> None:
    model = models.load(MODELS[kind], FLOATS + LIMIT)
    with one_request(models, model):
        models.server.wait_for(f"execute of '{model}' has been running for 0.2 s (instance '{model}_0')")
        models.server.wait_until(lambda: "in until_released" in after(models, model), "its stack")
        wait_until(lambda: metric(models, model) == 1, "the metric")
        wait_until(lambda: told(models, model)[1], "the console")
        assert told(models, model)[0].startswith("an execution has been running for ")
    wait_until(lambda: metric(models, model) == 0, "the metric to be 0 again")
    wait_until(lambda: told(models, model) == ("", False), "the console to say no more")
    assert models.server.log.count(f"execute of '{model}' has been running") == 1


def after(models: Models, model: str) -> str:
    """The log from the message on."""
    return models.server.log.partition(f"execute of '{model}' has been running")[2]


def test_native_code_that_holds_the_lock_is_found(models: Models) -> None:
    held = waiting("import ctypes; ctypes.PyDLL(None).usleep(60_000_000)")
    model = models.load(held, FLOATS + LIMIT)
    stream = Stream(models)
    stream.send(model)
    models.server.wait_until(lambda: "in until_released" in after(models, model), "its stack")
    assert "native code may hold the interpreter's lock" in after(models, model)
    kill(models.pids(model)[0])
    assert "was killed by SIGKILL" in stream.take().error
    stream.close()


def test_executions_in_the_server_are_watched_too(models: Models) -> None:
    model = models.load(MODELS["sleeping"], FLOATS + LIMIT + IN_SERVER)
    with one_request(models, model):
        models.server.wait_until(lambda: "in until_released" in after(models, model), "its stack")


def test_executions_are_not_watched_if_the_setting_is_0(models: Models) -> None:
    model = models.load(MODELS["sleeping"], FLOATS + LIMIT.replace("0.2", "0"))
    watched = models.load(MODELS["sleeping"], FLOATS + LIMIT)
    with one_request(models, model), one_request(models, watched):
        models.server.wait_for(f"execute of '{watched}' has been running")
        assert metric(models, model) == 0
        assert f"execute of '{model}' has been running" not in models.server.log


def test_short_executions_are_not_logged(models: Models) -> None:
    model = models.load(executing(ANSWER), FLOATS + LIMIT)
    watched = models.load(MODELS["sleeping"], FLOATS + LIMIT)
    models.infer(model)
    with one_request(models, watched):
        models.server.wait_for(f"execute of '{watched}' has been running")
        models.infer(model)
    assert f"execute of '{model}' has been running" not in models.server.log
