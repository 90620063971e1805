"""A server whose models are in buckets: those of the host's store, behind a proxy that misbehaves."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.buckets.servers import IDENTITY, away, forbidden, index, infer, load, post, serving
from tests.support.azurite import ACCOUNT, KEY, azurite, make_container, put_all
from tests.support.buckets import Answer, Bucket, Proxy, Request
from tests.support.gcs import BUCKET, gcs_emulator

TWICE = """platform: "ensemble"
input [{ name: "X", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [-1] }]
ensemble_scheduling { step [
  { model_name: "local", model_version: -1, input_map { key: "X" value: "X" }, output_map { key: "Y" value: "m" } },
  { model_name: "a", model_version: -1, input_map { key: "X" value: "m" }, output_map { key: "Y" value: "Y" } }
] }
"""


def test_models_of_a_bucket_and_a_directory_are_served_together(
    bucket: Bucket, local: Path, tmp_path: Path
) -> None:
    with serving(
        tmp_path / "cache", f"--model-repository={bucket.url()}", f"--model-repository={local}"
    ) as server:
        assert index(server) == {"a": "READY", "b": "READY", "local": "READY"}
        assert infer(server, "a") == infer(server, "local") == [1, 2]


def test_buckets_of_several_services_are_served_together(bucket: Bucket, local: Path, tmp_path: Path) -> None:
    with azurite() as azure, gcs_emulator() as google:
        put_all(make_container(azure, "models"), {"azure/config.pbtxt": IDENTITY, "azure/1/weights": "x"})
        google.put("repository/google/config.pbtxt", IDENTITY)
        google.put("repository/google/1/weights", "x")
        urls = [
            bucket.url(),
            f"gs://{BUCKET}/repository",
            f"as://{azure}/{ACCOUNT}/models/repository",
            str(local),
        ]
        repositories = [f"--model-repository={url}" for url in urls]
        keys = {"AZURE_STORAGE_KEY": KEY, "STORAGE_EMULATOR_HOST": google.url}
        with serving(tmp_path / "cache", *repositories, variables=keys) as server:
            assert index(server) == dict.fromkeys(["a", "azure", "b", "google", "local"], "READY")
            assert infer(server, "azure") == infer(server, "google") == [1, 2]


def test_only_the_models_that_are_asked_for_are_fetched(bucket: Bucket, front: Proxy, tmp_path: Path) -> None:
    repository = f"--model-repository={bucket.url(endpoint=front.url)}"
    with serving(tmp_path / "cache", repository, "--model-control-mode=explicit", "--load-model=a") as server:
        assert index(server) == {"a": "READY", "b": ""}
        assert {each.path.rpartition("repository/")[2] for each in front.gets()} == {
            "a/config.pbtxt",
            "a/1/weights",
        }
        assert load(server, "b") == (200, None)
        assert infer(server, "b") == [1, 2]
        status, _ = post(server, "/v2/repository/models/b/unload")
        assert status == 200
        status, answer = load(server, "missing")
        assert status == 500
        assert "model not found in any model repository" in answer["error"]


def test_on_demand_a_model_is_fetched_when_it_is_asked_for(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    repository = f"--model-repository={bucket.url(endpoint=front.url)}"
    with serving(tmp_path / "cache", repository, "--model-control-mode=ondemand") as server:
        assert front.gets("/weights") == []
        assert infer(server, "b") == [1, 2]
        assert [each.path.rpartition("repository/")[2] for each in front.gets("/weights")] == ["b/1/weights"]
        status, _ = post(server, "/v2/models/missing/infer", {"inputs": []})
        assert status == 404


def test_a_restart_fetches_nothing_that_has_not_changed(bucket: Bucket, front: Proxy, tmp_path: Path) -> None:
    repository = f"--model-repository={bucket.url(endpoint=front.url)}"
    with serving(tmp_path / "cache", repository) as server:
        assert "fetched 'a' from s3://" in server.log
        assert server.stop() == 0
    front.requests.clear()
    bucket.put("repository/b/1/weights", "new")
    with serving(tmp_path / "cache", repository) as server:
        assert infer(server, "a") == [1, 2]
    assert [each.path.rpartition("repository/")[2] for each in front.gets()] == ["b/1/weights"]


def test_an_ensemble_of_a_bucket_uses_models_of_a_directory(
    bucket: Bucket, local: Path, tmp_path: Path
) -> None:
    bucket.put_all({"twice/config.pbtxt": TWICE, "twice/1/": b""})
    flags = [
        f"--model-repository={bucket.url()}",
        f"--model-repository={local}",
        "--model-control-mode=explicit",
    ]
    with serving(tmp_path / "cache", *flags) as server:
        assert load(server, "twice") == (200, None)
        assert index(server) == {"a": "READY", "b": "", "local": "READY", "twice": "READY"}
        assert infer(server, "twice") == [1, 2]


def test_a_name_that_a_bucket_and_a_directory_have_is_served_from_neither(
    bucket: Bucket, local: Path, tmp_path: Path
) -> None:
    (local / "local").rename(local / "a")
    flags = [f"--model-repository={bucket.url()}", f"--model-repository={local}", "--exit-on-error=false"]
    with serving(tmp_path / "cache", *flags, "--strict-readiness=false") as server:
        assert index(server)["a"] == "UNAVAILABLE"
        assert "model appears in two or more repositories" in server.log


def test_models_of_buckets_are_overridden_as_those_of_directories(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("repository/a/2/weights", "2")
    with serving(
        tmp_path / "cache", f"--model-repository={bucket.url()}", "--model-control-mode=explicit"
    ) as server:
        ports = {
            side: [{"name": name, "data_type": "TYPE_FP32", "dims": [-1]}]
            for side, name in [("input", "X"), ("output", "Y")]
        }
        config = json.dumps(
            {"backend": "identity", "version_policy": {"specific": {"versions": [1]}}, **ports}
        )
        assert load(server, "a", config=config) == (200, None)
        assert json.loads(server.get("/v2/models/a")[1])["versions"] == ["1"]
        assert load(server, "new", **{"config": config, "file:1/weights": "eA=="}) == (200, None)
        assert infer(server, "new") == [1, 2]
        assert post(server, "/v2/repository/models/a/unload")[0] == 200
        server.wait_until(lambda: index(server)["a"] == "UNAVAILABLE", "the model to be unloaded")
        assert load(server, "a") == (200, None)
        assert json.loads(server.get("/v2/models/a")[1])["versions"] == ["2"]


def test_polling_follows_the_bucket_and_outlives_its_absence(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    flags = [f"--model-repository={bucket.url(endpoint=front.url)}", "--model-control-mode=poll"]
    with serving(tmp_path / "cache", *flags, "--repository-poll-secs=1") as server:
        bucket.put_all({"c/config.pbtxt": IDENTITY, "c/1/weights": "c"})
        server.wait_until(lambda: index(server).get("c") == "READY", "the new model")
        front.fault = away
        server.wait_for(f"failed to poll model repository '{bucket.url(endpoint=front.url)}': cannot list")
        assert index(server) == dict.fromkeys("abc", "READY")
        assert infer(server, "a") == [1, 2]
        front.fault = forbidden
        server.wait_for("S3 refuses it")
        assert server.get("/v2/health/ready")[0] == 200
        front.fault = lambda _request, answer: answer
        for key in ("config.pbtxt", "1/weights"):
            bucket.delete(f"repository/c/{key}")
        server.wait_until(lambda: "c" not in index(server), "the model to be gone")
        bucket.put("repository/a/1/weights", "another")
        server.wait_until(lambda: server.log.count("successfully loaded 'a'") == 2, "the changed model")
        assert server.log.count("successfully loaded 'b'") == 1


def test_a_fetch_that_fails_while_polling_is_tried_again(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    flags = [f"--model-repository={bucket.url(endpoint=front.url)}", "--model-control-mode=poll"]
    with serving(tmp_path / "cache", *flags, "--repository-poll-secs=1") as server:
        front.fault = lambda request, answer: answer if request.lists else forbidden(request, answer)
        bucket.put("repository/a/1/weights", "another")
        server.wait_for("failed to load 'a'")
        assert infer(server, "a") == [1, 2]
        assert server.get("/v2/health/ready")[0] == 200
        front.fault = lambda _request, answer: answer
        server.wait_until(lambda: server.log.count("successfully loaded 'a'") == 2, "the changed model")


def test_a_bucket_that_is_away_is_told_to_who_loads_and_takes_nothing_down(
    bucket: Bucket, front: Proxy, local: Path, tmp_path: Path
) -> None:
    url = bucket.url(endpoint=front.url)
    flags = [f"--model-repository={url}", f"--model-repository={local}", "--model-control-mode=explicit"]
    with serving(tmp_path / "cache", *flags, "--load-model=a") as server:
        front.fault = forbidden
        for name in ("a", "b"):
            status, answer = load(server, name)
            assert status == 500
            assert answer["error"].startswith(
                f"failed to load '{name}', failed to poll from model repository: cannot list {url} (bucket "
                f"'{bucket.name}', key 'repository/{name}'): S3 refuses it (403 Forbidden: AccessDenied: Access Denied)"
            )
        assert infer(server, "a") == [1, 2]
        assert index(server)["a"] == "READY"
        assert server.get("/v2/health/ready")[0] == 200
        assert load(server, "local") == (200, None)
        assert infer(server, "local") == [1, 2]
        front.fault = lambda _request, answer: answer
        assert load(server, "b") == (200, None)


def test_the_index_does_not_wait_for_a_bucket_that_hangs(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    gate = threading.Event()
    with serving(tmp_path / "cache", f"--model-repository={bucket.url(endpoint=front.url)}") as server:

        def hang(_request: object, answer: Answer) -> Answer:
            answer.gate = gate
            return answer

        front.fault = hang
        assert index(server) == {"a": "READY", "b": "READY"}
        assert infer(server, "a") == [1, 2]
        gate.set()


@pytest.mark.parametrize(
    ("fault", "reason"), [(away, "gives no proper answer"), (forbidden, "S3 refuses it")]
)
def test_a_server_whose_bucket_cannot_be_read_at_start_ends_with_the_reason(
    fault: Any, reason: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    front.fault = fault
    url = bucket.url(endpoint=front.url)
    with serving(tmp_path / "cache", f"--model-repository={url}", ready=False) as server:
        assert server.process.wait(60) == 1
        assert f"cannot list {url} (bucket '{bucket.name}', key 'repository'): " in server.log
        assert reason in server.log


@pytest.mark.parametrize("what", ["list", "weights"])
def test_a_server_that_stops_does_not_wait_for_a_bucket_that_hangs(
    what: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    gate, asked = threading.Event(), threading.Event()

    def hang(request: Request, answer: Answer) -> Answer:
        if request.lists if what == "list" else request.path.endswith("/weights"):
            answer.gate, answer.sent = gate, 100
            asked.set()
        return answer

    front.fault = hang
    repository = f"--model-repository={bucket.url(endpoint=front.url)}"
    with serving(tmp_path / "cache", repository, "--exit-timeout-secs=60", ready=False) as server:
        assert asked.wait(60)
        server.process.terminate()
        assert server.process.wait(20) == 0
        gate.set()


def test_two_servers_share_a_cache_and_neither_removes_what_the_other_serves(
    bucket: Bucket, tmp_path: Path
) -> None:
    flags = [
        f"--model-repository={bucket.url()}",
        "--model-control-mode=explicit",
        "--cloud-cache-size=180KB",
    ]
    for name in ("x", "y"):
        bucket.put_all({f"{name}/config.pbtxt": IDENTITY, f"{name}/1/weights": "x" * 100_000})
    cache = tmp_path / "cache"
    with serving(cache, *flags) as one, serving(cache, *flags) as other:
        assert load(one, "x") == (200, None)
        status, answer = load(other, "y")
        assert status == 503
        assert "and those in use take" in answer["error"]
        assert infer(one, "x") == [1, 2]
        assert one.stop() == 0
        assert load(other, "y") == (200, None)
        assert infer(other, "y") == [1, 2]
    with serving(cache, *flags, "--load-model=x") as again:
        assert infer(again, "x") == [1, 2]
