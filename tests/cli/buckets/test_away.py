"""Servers that start while a bucket is away, and what is served meanwhile."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.buckets.servers import IDENTITY, away, forbidden, index, infer, load, new_bucket, post, serving
from tests.support.azurite import ACCOUNT, KEY, azurite, make_container, put_all
from tests.support.buckets import Answer, Bucket, Proxy, Request, proxy, unchanged
from tests.support.gcs import BUCKET, gcs_emulator

KEPT = "Its models are loaded as they were fetched earlier"
BACK = "can be listed again"
CHAIN = """platform: "ensemble"
input [{ name: "X", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [-1] }]
ensemble_scheduling { step [
  { model_name: "a", model_version: -1, input_map { key: "X" value: "X" }, output_map { key: "Y" value: "Y" } }
] }
"""


def repository(bucket: Bucket, front: Proxy) -> str:
    """The flag that names a bucket behind a proxy."""
    return f"--model-repository={bucket.url(endpoint=front.url)}"


def hold(gate: threading.Event, asked: threading.Event) -> Any:
    """A fault: whatever is listed comes when the gate opens; `asked` tells that something was."""

    def fault(request: Request, answer: Answer) -> Answer:
        if request.lists:
            asked.set()
            answer.gate = gate
        return answer

    return fault


class Fetched(NamedTuple):
    """A bucket, the proxy in front of it, and a cache into which its models were fetched."""

    bucket: Bucket
    front: Proxy
    cache: Path


@pytest.fixture(scope="module")
def fetched_once(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetched]:
    """A bucket with the models a and b, which a server has fetched."""
    with proxy(store) as front:
        found = Fetched(new_bucket(store), front, tmp_path_factory.mktemp("fetched") / "cache")
        with serving(found.cache, repository(found.bucket, front)) as server:
            assert server.stop() == 0
        yield found


@pytest.fixture
def fetched(fetched_once: Fetched, tmp_path: Path) -> Iterator[Fetched]:
    """The same, whose cache is the test's own; what it puts into the bucket is replaced afterwards."""
    yield fetched_once._replace(cache=shutil.copytree(fetched_once.cache, tmp_path / "cache"))
    fetched_once.front.fault = unchanged
    fetched_once.bucket.put("repository/a/1/weights", "a" * 1000)


@pytest.mark.parametrize("fault", [away, forbidden])
def test_what_was_fetched_earlier_is_served_while_the_bucket_is_away(fault: Any, fetched: Fetched) -> None:
    bucket, front, cache = fetched
    front.fault = fault
    with serving(cache, repository(bucket, front)) as server:
        assert index(server) == {"a": "READY", "b": "READY"}
        assert infer(server, "a") == infer(server, "b") == [1, 2]
        assert server.get("/v2/health/ready")[0] == 200
        assert server.log.count(KEPT) == 1
        assert f"cannot list {bucket.url(endpoint=front.url)}" in server.log


def test_buckets_of_every_service_may_be_away_at_the_start(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with azurite() as azure, gcs_emulator() as google:
        put_all(make_container(azure, "models"), {"azure/config.pbtxt": IDENTITY, "azure/1/weights": "x"})
        google.put("repository/google/config.pbtxt", IDENTITY)
        google.put("repository/google/1/weights", "x")
        flags = [
            repository(bucket, front),
            f"--model-repository=gs://{BUCKET}/repository",
            f"--model-repository=as://{azure}/{ACCOUNT}/models/repository",
        ]
        variables = {"AZURE_STORAGE_KEY": KEY, "STORAGE_EMULATOR_HOST": google.url}
        with serving(cache, *flags, variables=variables) as server:
            assert server.stop() == 0
    front.fault = away
    with serving(cache, *flags, variables=variables) as server:
        assert index(server) == dict.fromkeys(["a", "azure", "b", "google"], "READY")
        assert infer(server, "azure") == infer(server, "google") == infer(server, "a") == [1, 2]
        assert server.log.count(KEPT) == 3


def test_an_ensemble_and_its_models_are_loaded_as_they_were_fetched_earlier(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    bucket.put_all({"chain/config.pbtxt": CHAIN, "chain/1/": b""})
    flags = [repository(bucket, front), "--model-control-mode=explicit", "--load-model=chain"]
    with serving(tmp_path / "cache", *flags) as server:
        assert server.stop() == 0
    front.fault = away
    with serving(tmp_path / "cache", *flags) as server:
        assert infer(server, "chain") == [1, 2]
        status, answer = load(server, "b")
        assert status == 500
        assert "gives no proper answer" in answer["error"]
        assert post(server, "/v2/repository/models/chain/unload")[0] == 200
        server.wait_until(lambda: index(server)["chain"] == "UNAVAILABLE", "the ensemble to be gone")
        assert load(server, "chain") == (200, None)
        front.fault = unchanged
        assert load(server, "b") == (200, None)
        assert infer(server, "b") == [1, 2]


def test_a_client_that_loads_a_model_gets_what_the_bucket_has_once_it_is_back(fetched: Fetched) -> None:
    bucket, front, cache = fetched
    flags = [repository(bucket, front), "--model-control-mode=explicit", "--repository-poll-secs=600"]
    front.fault = away
    with serving(cache, *flags) as server:
        bucket.put("repository/a/1/weights", "new")
        front.fault = unchanged
        assert load(server, "a") == (200, None)
        [weights] = cache.glob("*/models/a/1/weights")
        assert weights.read_text() == "new"


def test_on_demand_a_model_is_loaded_as_it_was_fetched_earlier(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    flags = [repository(bucket, front), "--model-control-mode=ondemand"]
    with serving(tmp_path / "cache", *flags) as server:
        assert infer(server, "a") == [1, 2]
        assert server.stop() == 0
    front.fault = away
    with serving(tmp_path / "cache", *flags) as server:
        assert infer(server, "a") == [1, 2]
        tensor = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}
        status, answer = post(server, "/v2/models/b/infer", {"inputs": [tensor]})
        assert status == 503
        assert "gives no proper answer" in answer["error"]


def test_polling_goes_on_from_what_was_fetched_earlier(fetched: Fetched) -> None:
    bucket, front, cache = fetched
    flags = [repository(bucket, front), "--model-control-mode=poll", "--repository-poll-secs=1"]
    front.fault = away
    with serving(cache, *flags) as server:
        bucket.put("repository/a/1/weights", "new")
        front.fault = unchanged
        server.wait_for(BACK)
        server.wait_until(lambda: server.log.count("successfully loaded 'a'") == 2, "the changed model")
        assert server.log.count("successfully loaded 'b'") == 1


def test_what_was_listed_but_not_fetched_any_more_is_fetched_when_the_bucket_is_back(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    flags = [repository(bucket, front), "--model-control-mode=poll", "--repository-poll-secs=1"]
    with serving(tmp_path / "cache", *flags) as server:
        front.fault = lambda request, answer: answer if request.lists else forbidden(request, answer)
        bucket.put("repository/a/1/weights", "new")
        server.wait_for("failed to load 'a'")
        assert server.stop() == 0
    front.fault = away
    with serving(tmp_path / "cache", *flags) as server:
        assert infer(server, "a") == [1, 2]
        [weights] = (tmp_path / "cache").glob("*/models/a/1/weights")
        assert weights.read_text() == "a" * 1000
        assert "'a' is loaded as it was fetched earlier" in server.log
        front.fault = unchanged
        server.wait_until(lambda: weights.read_text() == "new", "the new file")
        server.wait_until(lambda: server.log.count("successfully loaded 'a'") == 2, "the changed model")


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_bucket_of_which_nothing_is_there_is_waited_for_while_others_are_served(
    mode: str, bucket: Bucket, front: Proxy, local: Path, tmp_path: Path
) -> None:
    front.fault = away
    flags = [repository(bucket, front), f"--model-repository={local}", f"--model-control-mode={mode}"]
    flags += ["--load-model=a", "--load-model=local"] if mode == "explicit" else []
    cache = tmp_path / "cache"
    with serving(cache, *flags, "--exit-on-error=false", "--repository-poll-secs=1", ready=False) as server:
        server.wait_for("Nothing of it was fetched earlier; the other repositories are served")
        server.wait_for("successfully loaded 'local'")
        assert infer(server, "local") == [1, 2]
        assert index(server)["local"] == "READY"
        assert server.get("/v2/health/ready")[0] == 400
        front.fault = unchanged
        server.wait_until_ready()
        assert BACK in server.log
        server.wait_until(lambda: index(server)["a"] == "READY", "the models of the bucket")
        assert infer(server, "a") == [1, 2]
        assert index(server)["b"] == ("" if mode == "explicit" else "READY")


def test_a_bucket_that_hangs_does_not_delay_loads_from_others(
    store: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    other = Bucket(store, f"{bucket.name}-other")
    other.put_all({"c/config.pbtxt": IDENTITY, "c/1/weights": "c"})
    gate, asked = threading.Event(), threading.Event()
    flags = [repository(bucket, front), f"--model-repository={other.url()}", "--model-control-mode=explicit"]
    with serving(tmp_path / "cache", *flags) as server:
        front.fault = hold(gate, asked)
        answers: list[tuple[int, Any]] = []
        threads = [threading.Thread(target=lambda: answers.append(load(server, "a"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        assert asked.wait(60)
        assert load(server, "c") == (200, None)
        assert infer(server, "c") == [1, 2]
        assert answers == []
        gate.set()
        for thread in threads:
            thread.join(60)
        assert answers == [(200, None)] * 20


def test_fetches_that_hang_do_not_delay_those_from_other_buckets(
    store: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    names = [f"m{number}" for number in range(20)]
    bucket.put_all({f"{name}/config.pbtxt": IDENTITY for name in names})
    bucket.put_all({f"{name}/1/weights": "x" for name in names})
    other = Bucket(store, f"{bucket.name}-other")
    other.put_all({"c/config.pbtxt": IDENTITY, "c/1/weights": "c"})
    gate, asked = threading.Event(), threading.Semaphore(0)

    def fault(request: Request, answer: Answer) -> Answer:
        if request.path.endswith("/weights"):
            asked.release()
            answer.gate = gate
        return answer

    front.fault = fault
    flags = [repository(bucket, front), f"--model-repository={other.url()}", "--model-control-mode=explicit"]
    with serving(tmp_path / "cache", *flags) as server:
        answers: list[tuple[int, Any]] = []
        threads = [
            threading.Thread(target=lambda name=name: answers.append(load(server, name))) for name in names
        ]
        for thread in threads:
            thread.start()
        for _ in range(16):
            assert asked.acquire(timeout=60)
        assert load(server, "c") == (200, None)
        assert answers == []
        gate.set()
        for thread in threads:
            thread.join(60)
        assert answers == [(200, None)] * 20


def test_buckets_are_listed_side_by_side(store: str, bucket: Bucket, front: Proxy, tmp_path: Path) -> None:
    """Each listing of one comes only when one of the other was asked for."""
    other = Bucket(store, f"{bucket.name}-other")
    other.put_all({"c/config.pbtxt": IDENTITY, "c/1/weights": "c"})
    asked = {front.url: threading.Event()}
    with proxy(store) as second:
        asked[second.url] = threading.Event()
        front.fault = hold(asked[second.url], asked[front.url])
        second.fault = hold(asked[front.url], asked[second.url])
        with serving(tmp_path / "cache", repository(bucket, front), repository(other, second)) as server:
            assert index(server) == dict.fromkeys("abc", "READY")
