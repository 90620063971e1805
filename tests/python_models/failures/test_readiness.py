"""Whether a model is ready, as its `is_ready` says."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.python_models.cancelling import metric
from tests.python_models.support import (
    FLOATS,
    ONES,
    Models,
    answering,
    executing,
    grpc_inputs,
    kill,
    serve_models,
)
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server that is ready: one of which another module has had a model fail to load is not any more."""
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        yield models


def asking(body: str) -> str:
    """A model whose `is_ready` is this body."""
    return answering("x") + f"\n    def is_ready(self):\n        {body}\n"


def both(models: Models, name: str) -> tuple[bool, bool]:
    """Whether HTTP and gRPC say that it is ready."""
    return models.ready(name), models.grpc.is_model_ready(name)


@pytest.mark.parametrize(
    ("body", "ready"),
    [
        ("return True", True),
        ("return False", False),
        ("return 1", False),
        ("return None", False),
        ("return 'yes'", False),
        ("raise ValueError('not yet')", False),
        ("sys.exit()", False),
    ],
)
def test_only_true_means_ready_and_inference_works_in_any_case(
    models: Models, body: str, ready: bool
) -> None:
    name = models.load(asking(body))
    assert both(models, name) == (ready, ready)
    assert models.infer(name).tolist() == [1, 1, 1, 1]
    assert models.server.get(f"/v2/models/{name}/versions/1/ready")[0] == (200 if ready else 400)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return False", "Model '{name}_0' is not ready (user-defined check failed)."),
        ("return 5", "is_ready() must return a boolean value"),
        ("raise ValueError('not yet')", "ValueError: not yet"),
    ],
)
def test_log_says_why_the_model_is_not_ready(models: Models, body: str, why: str) -> None:
    name = models.load(asking(body))
    assert not models.ready(name)
    models.server.wait_for(f"Model '{name}' version 1 is not ready: {why.format(name=name)}")


def test_coroutine_may_say_whether_the_model_is_ready(models: Models) -> None:
    name = models.load(
        answering("x")
        + "\n    async def is_ready(self):\n        await asyncio.sleep(0.01)\n        return True\n"
    )
    assert both(models, name) == (True, True)


def test_answer_follows_the_model(models: Models, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    name = models.load(asking(f"return not os.path.exists('{flag}')"))
    assert both(models, name) == (True, True)
    flag.touch()
    assert both(models, name) == (False, False)
    flag.unlink()
    assert both(models, name) == (True, True)


def test_model_answers_while_it_executes(models: Models, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    name = models.load(
        executing(f"""
            open("{begun}", "w").close()
            while not os.path.exists("{go_on}"):
                time.sleep(0.005)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))])]
        """)
        + "\n    def is_ready(self):\n        return True\n"
    )
    thread = threading.Thread(target=lambda: models.grpc.infer(name, grpc_inputs(IN=ONES)))
    thread.start()
    wait_until(begun.exists, "the execution")
    assert models.ready(name)
    assert thread.is_alive()
    go_on.touch()
    thread.join()


def test_first_instance_that_is_not_ready_decides(models: Models) -> None:
    name = models.load(
        asking("return not self.name.endswith('_1')")
        + "    def initialize(self, args):\n        self.name = args['model_instance_name']\n",
        FLOATS + "instance_group [{ count: 3 kind: KIND_CPU }]",
    )
    assert not models.ready(name)
    models.server.wait_for(f"is not ready: Model '{name}_0_1' is not ready (user-defined check failed).")


def test_concurrent_checks_share_one_call(models: Models) -> None:
    name = models.load(
        answering("np.array([self.calls], np.float32)")
        + """
    calls = 0
    def is_ready(self):
        self.calls += 1
        time.sleep(1.5)
        return True
"""
    )
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(models.ready(name))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6
    assert models.infer(name)[0] in (1, 2)


def test_check_that_takes_too_long_says_no_and_the_next_gets_its_answer(
    models: Models, tmp_path: Path
) -> None:
    calls, go_on = tmp_path / "calls", tmp_path / "go on"
    name = models.load(
        answering("x")
        + f"""
    def is_ready(self):
        open("{calls}", "a").write("called ")
        while not os.path.exists("{go_on}"):
            time.sleep(0.005)
        return True
"""
    )
    began = time.monotonic()
    assert not models.ready(name)
    assert time.monotonic() - began > 4.9
    with ThreadPoolExecutor(1) as pool:
        ready = pool.submit(models.grpc.is_model_ready, name)
        wait_until(
            lambda: metric(models, 'halimede_requests_in_flight{protocol="grpc"}') == 1, "the next check"
        )
        go_on.touch()
        assert ready.result(60)
    assert calls.read_text() == "called "
    models.server.wait_for(
        f"Model '{name}' version 1 is not ready: Timed out waiting for user-defined is_ready() response"
    )


def test_check_of_a_process_that_dies_says_no_at_once(models: Models) -> None:
    name = models.load(asking("os._exit(3)"))
    assert not models.ready(name)
    models.server.wait_for(f"Model '{name}' version 1 is not ready: Stub process '{name}_0' is not healthy")
    assert models.infer(name).tolist() == [1, 1, 1, 1]


def test_other_requests_are_served_during_a_check(models: Models, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    name = models.load(
        answering("x")
        + f"""
    def is_ready(self):
        open("{begun}", "w").close()
        while not os.path.exists("{go_on}"):
            time.sleep(0.005)
        return True
"""
    )
    thread = threading.Thread(target=models.ready, args=(name,))
    thread.start()
    wait_until(begun.exists, "the check")
    for _ in range(20):
        assert models.infer(name).tolist() == [1, 1, 1, 1]
    assert thread.is_alive()
    go_on.touch()
    thread.join()


def test_unloaded_model_is_not_ready(models: Models) -> None:
    name = models.load(asking("return True"))
    models.http.unload_model(name)
    wait_until(lambda: not models.ready(name), "the model not to be ready")
    assert not models.grpc.is_model_ready(name)


def test_health_of_the_server_does_not_ask_models(models: Models) -> None:
    name = models.load(asking("return False"))
    assert not models.ready(name)
    wait_until(lambda: models.server.get("/v2/health/ready")[0] == 200, "processes of other tests to be back")
    kill(models.pids(name)[0])
    wait_until(lambda: models.server.get("/v2/health/ready")[0] == 200, "the process to be back")
