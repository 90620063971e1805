"""Invoking many models on few instances, as boto3 and an instance see it."""

import random
import threading
import time
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from halimede.hosting.routing.residency.model_calls import HttpModelCalls, ModelAnswer
from halimede.hosting.routing.residency.placement_hash import ranked
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.settings import InvocationSettings
from tests.hosting.instances import Received, Reply, echo
from tests.hosting.residency.serving import MB, Rig, Source, State, failure, hash_of, leave, multi_model
from tests.hosting.routing.serving import ENDPOINT, invoke
from tests.support.waiting import wait_until

OUT_OF_MEMORY = Reply(507, b'{"error": "out of memory"}')


def ask(rig: Rig, model: str, body: bytes = b"body") -> bytes:
    """What the model answers."""
    answer = invoke(rig.client, body, TargetModel=model)["Body"].read()
    assert isinstance(answer, bytes)
    return answer


def refusal(rig: Rig, model: str) -> tuple[str, int, str]:
    """Code, status and message of the error that a request for the model gets."""
    with pytest.raises(ClientError) as caught:
        ask(rig, model)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Message"]


def is_answered(rig: Rig, model: str) -> bool:
    """Whether a request for the model gets its body back, and no error."""
    try:
        return ask(rig, model) == b"body"
    except ClientError:
        return False


def settle(rig: Rig) -> None:
    wait_until(lambda: rig.is_settled, "the end of all that is under way")


class TestLoading:
    def test_a_model_is_fetched_and_loaded_when_it_is_invoked(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            assert ask(rig, "team/a.tar.gz", b"one") == b"one"
            assert ask(rig, "team/a.tar.gz", b"two") == b"two"
            name = hash_of("team/a.tar.gz")
            load, *invocations = rig.fakes[0].seen
            assert (load.method, load.path) == ("POST", "/models")
            assert load.body == f'{{"model_name":"{name}","url":"/opt/ml/models/{name}/model"}}'.encode()
            assert load.headers["x-amzn-sagemaker-target-model"] == "team/a.tar.gz"
            assert [each.path for each in invocations] == [f"/models/{name}/invoke"] * 2
            assert invocations[0].headers["x-amzn-sagemaker-target-model"] == "team/a.tar.gz"
            assert (tmp_path / "0" / name / "model" / "name").read_text() == "team/a.tar.gz"
            assert rig.host.meter.placements == [False, True]
            assert (rig.models.downloads, rig.models.loads, rig.models.unloads) == (1, 1, 0)
            assert rig.residency.loaded_counts() == {"AllTraffic-0": 1}
            settle(rig)

    def test_a_hash_is_32_hexadecimal_digits(self) -> None:
        assert len(hash_of("m.tar.gz")) == 32
        assert set(hash_of("m.tar.gz")) <= set("0123456789abcdef")

    def test_many_first_requests_are_one_fetch_and_one_load(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, source=Source(delay_s=0.2)) as rig, ThreadPoolExecutor(50) as threads:
            answers = list(threads.map(lambda n: ask(rig, "a.tar.gz", b"%d" % n), range(50)))
            assert answers == [b"%d" % number for number in range(50)]
            assert rig.source.fetched == ["a.tar.gz"]
            assert len(rig.calls("POST")) == 1
            settle(rig)

    def test_a_request_waits_until_its_deadline_while_the_load_goes_on(self, tmp_path: Path) -> None:
        source = Source()
        source.gate.clear()
        with multi_model(tmp_path, source=source, invocation=InvocationSettings(model_wait_s=0.3)) as rig:
            began = time.monotonic()
            code, status, message = refusal(rig, "a.tar.gz")
            assert time.monotonic() - began >= 0.3
            assert rig.loaded() == set()
            source.gate.set()
            assert (code, status) == ("ModelNotReadyException", 429)
            assert "Model 'a.tar.gz' is not ready for inference yet: its archive is being fetched" in message
            wait_until(lambda: rig.loaded() == {"a.tar.gz"})
            assert ask(rig, "a.tar.gz") == b"body"
            assert source.fetched == ["a.tar.gz"]
            assert rig.host.meter.placements == [True]
            settle(rig)

    def test_a_model_that_is_loaded_already_is_taken_as_it_is(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            rig.fakes[0].models[hash_of("a.tar.gz")] = "/opt/ml/models/x/model"
            assert ask(rig, "a.tar.gz") == b"body"  # the load is answered 409
            settle(rig)

    def test_a_model_that_the_instance_has_lost_is_loaded_again(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            ask(rig, "a.tar.gz")
            rig.fakes[0].models.clear()
            assert ask(rig, "a.tar.gz") == b"body"
            assert len(rig.calls("POST")) == 2
            assert rig.source.fetched == ["a.tar.gz"]
            settle(rig)

    def test_an_instance_that_knows_no_model_is_not_asked_for_ever(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            rig.fakes[0].invoke = lambda _: Reply(404, b"never heard of it")
            code, status, message = refusal(rig, "a.tar.gz")
            assert (code, status) == ("ModelError", 424)
            assert "never heard of it" in message
            settle(rig)

    def test_a_client_that_goes_while_its_model_is_loaded(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, source=Source(delay_s=0.5)) as rig:
            impatient = rig.host.client(read_timeout=0.1)
            with pytest.raises(ReadTimeoutError):
                invoke(impatient, TargetModel="a.tar.gz")
            wait_until(lambda: not rig.host.invocations.count)
            wait_until(lambda: rig.entry("a.tar.gz").waiting == 0)
            wait_until(lambda: rig.loaded() == {"a.tar.gz"})
            assert rig.fakes[0].paths() == ["/models"]  # nothing was invoked
            settle(rig)


class TestWrongRequests:
    @pytest.mark.parametrize("model", ["../x", "a/../b.tar.gz", "a/", ".", "x" * 1025])
    def test_names_that_are_none(self, tmp_path: Path, model: str) -> None:
        with multi_model(tmp_path) as rig:
            code, status, message = refusal(rig, model)
            assert (code, status) == ("ValidationError", 400)
            assert "targetmodel" in message.lower()
            assert rig.source.fetched == []
            settle(rig)

    def test_no_name(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            with pytest.raises(
                ClientError, match="is a multi-model endpoint; say with TargetModel"
            ) as caught:
                invoke(rig.client)
            assert caught.value.response["Error"]["Code"] == "ValidationError"
            settle(rig)

    def test_response_streams_are_refused(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig, pytest.raises(ClientError, match="gives no response streams"):
            rig.client.invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, Body=b"")

    def test_no_instance(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 0) as rig:
            assert refusal(rig, "a.tar.gz")[:2] == ("ServiceUnavailable", 503)
            settle(rig)

    def test_a_missing_archive_and_one_that_is_put_there_afterwards(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, source=Source(missing={"a.tar.gz"})) as rig:
            code, status, message = refusal(rig, "a.tar.gz")
            assert (code, status) == ("ValidationError", 400)
            assert message == "Could not find model data at s3://bucket/models/a.tar.gz"
            rig.source.missing.clear()
            assert ask(rig, "a.tar.gz") == b"body"
            settle(rig)

    def test_wrong_names_do_not_pile_up(self, tmp_path: Path) -> None:
        names = [f"{number}.tar.gz" for number in range(30)]
        with multi_model(tmp_path, 2, source=Source(missing=set(names))) as rig:
            for name in names:
                refusal(rig, name)
            wait_until(lambda: not any(holder.entries for holder in rig.holders))


class TestFailures:
    QUICK = ResidencySettings(failure_s=0.5)

    def test_a_broken_archive_is_not_fetched_again_at_once(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, source=Source(broken={"a.tar.gz": failure()}), settings=self.QUICK) as rig:
            for _ in range(3):
                assert refusal(rig, "a.tar.gz") == ("ValidationError", 400, "the archive is broken")
            assert rig.source.fetched == ["a.tar.gz"]
            assert not (tmp_path / "0" / hash_of("a.tar.gz")).exists()
            rig.source.broken.clear()
            wait_until(lambda: is_answered(rig, "a.tar.gz"), "another attempt")
            assert rig.source.fetched == ["a.tar.gz"] * 2
            settle(rig)

    def test_all_who_wait_hear_of_a_failure(self, tmp_path: Path) -> None:
        source = Source(broken={"a.tar.gz": failure("InternalFailure")}, delay_s=0.2)
        with multi_model(tmp_path, source=source) as rig, ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: refusal(rig, "a.tar.gz"), range(8)))
            assert {each[0] for each in answers} == {"InternalFailure"}
            assert source.fetched == ["a.tar.gz"]
            settle(rig)

    def test_an_error_that_nobody_foresaw(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with multi_model(tmp_path, source=Source(broken={"a.tar.gz": RuntimeError("surprise")})) as rig:
            assert refusal(rig, "a.tar.gz")[:2] == ("InternalFailure", 500)
            settle(rig)
        assert "model 'a.tar.gz' of instance AllTraffic-0 could not be loaded" in caplog.text

    def test_a_load_that_the_instance_refuses(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            rig.fakes[0].on_load = lambda _: Reply(400, b'{"error": "no config.pbtxt"}')
            with pytest.raises(ClientError) as caught:
                ask(rig, "a.tar.gz")
            answer = caught.value.response
            assert (answer["Error"]["Code"], answer["OriginalStatusCode"]) == ("ModelError", 400)
            assert "no config.pbtxt" in answer["Error"]["Message"]
            assert rig.entry("a.tar.gz").state is State.ON_DISK
            settle(rig)

    def test_a_load_that_takes_too_long(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, settings=ResidencySettings(load_timeout_s=0.2, failure_s=0.1)) as rig:
            gate = threading.Event()

            def hold(_: Received) -> None:
                assert gate.wait(60)

            rig.fakes[0].on_load = hold
            code, status, message = refusal(rig, "a.tar.gz")
            assert (code, status) == ("ModelError", 424)
            assert "0.2 seconds" in message
            gate.set()
            wait_until(lambda: hash_of("a.tar.gz") in rig.fakes[0].models, "the end of the late load")
            wait_until(lambda: is_answered(rig, "a.tar.gz"), "another load, which is answered 409 now")
            settle(rig)

    def test_an_instance_that_dies_during_a_load(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:

            def die(_: Received) -> None:
                rig.fakes[0].break_off()

            rig.fakes[0].on_load = die
            assert refusal(rig, "a.tar.gz")[:2] == ("ModelError", 424)
            settle(rig)


class TestMemory:
    def test_the_least_recently_used_model_goes(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, room=3) as rig:
            for model in ("a", "b", "c", "a", "d"):
                ask(rig, model)
            assert rig.loaded() == {"a", "c", "d"}
            assert rig.calls("DELETE") == [hash_of("b")]
            assert rig.entry("b").state is State.ON_DISK
            ask(rig, "b")
            assert rig.loaded() == {"a", "b", "d"}
            assert rig.source.fetched == ["a", "b", "c", "d"]  # what is on disk is not fetched again
            assert (rig.models.loads, rig.models.unloads) == (5, 2)
            settle(rig)

    def test_models_that_are_asked_for_once_do_not_drive_out_one_that_many_ask_for(
        self, tmp_path: Path
    ) -> None:
        with multi_model(tmp_path, room=5) as rig:
            for _ in range(10):
                ask(rig, "popular")
            for number in range(20):
                ask(rig, f"once-{number}")
            assert rig.loaded() == {"popular", *(f"once-{number}" for number in range(16, 20))}
            assert rig.source.fetched.count("popular") == 1
            settle(rig)

    def test_a_model_that_was_popular_long_ago_goes(self, tmp_path: Path) -> None:
        settings = ResidencySettings(half_life=1)
        with multi_model(tmp_path, room=2, settings=settings) as rig:
            for model in ["before"] * 8 + ["now", "then"] * 10:
                ask(rig, model)
            assert rig.loaded() == {"now", "then"}
            settle(rig)

    def test_a_large_model_takes_the_room_of_several(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, room=4, source=Source(sizes={"large": 3 * MB})) as rig:
            for model in ("a", "b", "c", "d", "large"):
                ask(rig, model)
            assert rig.loaded() == {"d", "large"}
            settle(rig)

    def test_a_model_with_requests_in_flight_stays(self, tmp_path: Path) -> None:
        held = threading.Event()

        def hold(received: Received) -> Reply:
            if received.body == b"hold":
                assert held.wait(60)
            return echo(received)

        with multi_model(tmp_path, room=2) as rig, ThreadPoolExecutor(1) as threads:
            rig.fakes[0].invoke = hold
            future = threads.submit(ask, rig, "a", b"hold")
            wait_until(lambda: len(rig.fakes[0].seen) == 2)
            for model in ("b", "c", "d"):
                ask(rig, model)
            assert rig.loaded() == {"a", "d"}
            held.set()
            assert future.result(60) == b"hold"
            ask(rig, "e")
            assert rig.loaded() == {"d", "e"}
            settle(rig)

    def test_an_instance_without_room_makes_others_go_twice_as_many_each_time(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            fake = rig.fakes[0]
            for number in range(8):
                ask(rig, f"m{number}")
            fake.room, refused = 1, []

            def count(_: Received) -> None:
                refused.append(len(fake.models))

            fake.on_load = count
            ask(rig, "new")
            assert refused == [8, 7, 5, 1, 0][: len(refused)]
            assert rig.loaded() == {"new"}
            settle(rig)

    def test_no_room_at_all_is_an_error_and_a_pinned_model_stays(self, tmp_path: Path) -> None:
        held = threading.Event()
        with multi_model(tmp_path) as rig, ThreadPoolExecutor(1) as threads:
            fake = rig.fakes[0]
            fake.invoke = lambda received: Reply(200, str(held.wait(60)).encode())
            future = threads.submit(ask, rig, "a")
            wait_until(lambda: len(fake.seen) == 2)
            fake.room = 1
            with pytest.raises(ClientError) as caught:
                ask(rig, "b")
            answer = caught.value.response
            assert (answer["Error"]["Code"], answer["OriginalStatusCode"]) == ("ModelError", 507)
            assert rig.loaded() == {"a"}
            held.set()
            future.result(60)
            settle(rig)

    def test_a_model_without_memory_to_run_gets_it_from_others(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            fake = rig.fakes[0]
            for model in ("a", "b", "c", "d", "e"):
                ask(rig, model)
            before = len(fake.seen)
            fake.invoke = lambda received: echo(received) if len(fake.models) <= 2 else OUT_OF_MEMORY
            assert ask(rig, "a", b"mine") == b"mine"
            assert rig.loaded() == {"a", "e"}  # one went, then two
            assert [each.method for each in fake.seen[before:]] == [
                "POST",
                "DELETE",
                "POST",
                "DELETE",
                "DELETE",
                "POST",
            ]
            settle(rig)

    def test_memory_that_cannot_be_freed_for_unforeseen_reasons_is_freed_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        unload, failures = HttpModelCalls.unload, [RuntimeError("unforeseen")]

        async def fail(calls: HttpModelCalls, model: str, name: str) -> ModelAnswer:
            if failures:
                raise failures.pop()
            return await unload(calls, model, name)

        monkeypatch.setattr(HttpModelCalls, "unload", fail)
        with multi_model(tmp_path) as rig:
            fake = rig.fakes[0]
            for model in ("a", "b", "c", "d"):
                ask(rig, model)
            fake.invoke = lambda received: echo(received) if len(fake.models) <= 2 else OUT_OF_MEMORY
            assert ask(rig, "a", b"mine") == b"mine"
            assert not failures
            assert "has no memory freed for model 'a'" in caplog.text
            settle(rig)

    def test_a_model_that_never_has_the_memory_is_an_error(self, tmp_path: Path) -> None:
        with multi_model(tmp_path) as rig:
            rig.fakes[0].invoke = lambda received: OUT_OF_MEMORY
            with pytest.raises(ClientError) as caught:
                ask(rig, "a")
            assert caught.value.response["OriginalStatusCode"] == 507
            assert len(rig.fakes[0].paths()) == 2  # there was nothing to unload: it was not tried again
            settle(rig)

    def test_a_body_that_is_gone_is_not_sent_again(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, invocation=InvocationSettings(kept_bytes=10)) as rig:
            ask(rig, "b")
            rig.fakes[0].invoke = lambda received: OUT_OF_MEMORY
            with pytest.raises(ClientError) as caught:
                ask(rig, "a", b"x" * 11)
            assert caught.value.response["OriginalStatusCode"] == 507
            assert rig.fakes[0].paths()[-1:] == [f"/models/{hash_of('a')}/invoke"]
            assert rig.fakes[0].paths().count(f"/models/{hash_of('a')}/invoke") == 1
            settle(rig)

    def test_models_that_are_not_kept_go_at_once(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, model_cache=False) as rig, ThreadPoolExecutor(8) as threads:
            for _ in range(3):
                list(threads.map(lambda n: ask(rig, f"m{n % 3}"), range(24)))
                wait_until(lambda: not rig.fakes[0].models)
                settle(rig)
                assert rig.loaded() == set()
                assert list((tmp_path / "0").iterdir()) == []


class TestDisk:
    def test_files_go_above_the_high_mark_down_to_the_low_mark(self, tmp_path: Path) -> None:
        settings = ResidencySettings(disk_high=0.9, disk_low=0.6)
        with multi_model(tmp_path, room=1, settings=settings, volume_bytes=10 * MB) as rig:
            for number in range(9):
                ask(rig, f"m{number}")
            files = set(rig.source.fetched)
            assert len(list((tmp_path / "0").iterdir())) <= 9
            ask(rig, "m9")
            left = {
                entry.model
                for entry in rig.holders[0].entries.values()
                if (tmp_path / "0" / entry.hash).exists()
            }
            assert {"m9", "m8"} <= left
            assert len(left) <= 7
            assert "m0" in files - left
            assert sum(entry.disk_bytes for entry in rig.holders[0].entries.values()) == len(left) * MB
            ask(rig, "m0")
            assert rig.source.fetched[-1] == "m0"
            settle(rig)

    def test_a_changed_archive_is_fetched_anew_when_it_is_loaded_next(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, room=1) as rig:
            ask(rig, "a")
            rig.source.etags["a"] = "another"
            ask(rig, "a")
            assert rig.source.fetched == ["a"]  # what is loaded stays
            ask(rig, "b")
            ask(rig, "a")
            assert rig.source.fetched == ["a", "b", "a"]
            settle(rig)

    def test_models_asked_for_while_their_files_go_are_fetched_again(self, tmp_path: Path) -> None:
        settings = ResidencySettings(disk_high=0.5, disk_low=0.2)
        with multi_model(tmp_path, room=2, settings=settings, volume_bytes=8 * MB) as rig:
            draw = random.Random(1)
            names = [f"m{draw.randrange(12)}" for _ in range(150)]
            with ThreadPoolExecutor(8) as threads:
                assert set(threads.map(lambda name: ask(rig, name), names)) == {b"body"}
            settle(rig)
            for entry in rig.holders[0].entries.values():
                held = entry.state in (State.ON_DISK, State.LOADED)
                assert (
                    held
                    == entry.has_files
                    == (tmp_path / "0" / entry.hash).exists()
                    == (entry.disk_bytes > 0)
                )


class TestInstances:
    def test_a_model_goes_where_it_is(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 3) as rig:
            for _ in range(5):
                for number in range(12):
                    ask(rig, f"m{number}")
            loads = [len(rig.calls("POST", number)) for number in range(3)]
            assert sum(loads) == 12
            assert all(loads)
            for number in range(12):
                first = ranked(f"m{number}", rig.host.variant.targets)[0]
                assert f"m{number}" in rig.loaded(rig.host.variant.targets.index(first))
            settle(rig)

    def test_a_hot_model_is_loaded_by_a_second_instance(self, tmp_path: Path) -> None:
        settings = ResidencySettings(spill_inflight=2, spill_s=0.05)

        def slow(received: Received) -> Reply:
            time.sleep(0.02)  # sleeps: the work of the model
            return echo(received)

        with multi_model(tmp_path, 3, settings=settings) as rig, ThreadPoolExecutor(8) as threads:
            for fake in rig.fakes:
                fake.invoke = slow
            ask(rig, "cold")

            def is_hot() -> bool:
                list(threads.map(lambda _: ask(rig, "hot"), range(64)))  # several times `spill_s`
                return sum("hot" in rig.loaded(number) for number in range(3)) >= 2

            wait_until(is_hot, "a second instance that has the hot model")
            assert sum("cold" in rig.loaded(number) for number in range(3)) == 1
            list(threads.map(lambda _: ask(rig, "hot"), range(64)))
            served = Counter(
                number
                for number in range(3)
                for path in rig.fakes[number].paths()
                if path.endswith("/invoke")
            )
            assert sum(count > 8 for count in served.values()) >= 2
            settle(rig)

    def test_an_instance_that_leaves_with_requests_waiting(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 2, source=Source(delay_s=0.5)) as rig, ThreadPoolExecutor(4) as threads:
            first = ranked("a", rig.host.variant.targets)[0]
            number = rig.host.variant.targets.index(first)
            futures = [threads.submit(ask, rig, "a") for _ in range(4)]
            wait_until(lambda: rig.source.fetched == ["a"])
            leave(rig, number)
            assert [future.result(60) for future in futures] == [b"body"] * 4
            assert rig.source.fetched == ["a", "a"]
            assert len(rig.fakes[1 - number].models) == 1
            assert rig.fakes[number].models == {}
            settle(rig)

    def test_the_last_instance_that_leaves_with_requests_waiting(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, source=Source(delay_s=5)) as rig, ThreadPoolExecutor(1) as threads:
            future = threads.submit(refusal, rig, "a")
            wait_until(lambda: rig.source.fetched == ["a"])
            leave(rig, 0)
            assert future.result(60)[:2] == ("ServiceUnavailable", 503)
            settle(rig)

    def test_closing_tells_those_that_wait(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 2, source=Source(delay_s=5)) as rig, ThreadPoolExecutor(1) as threads:
            future = threads.submit(refusal, rig, "a")
            wait_until(lambda: rig.source.fetched == ["a"])
            rig.host.loop.run(rig.residency.close())
            assert future.result(60)[:2] == ("ServiceUnavailable", 503)

    def test_a_model_of_an_instance_that_accepts_no_connection_is_loaded_by_another(
        self, tmp_path: Path
    ) -> None:
        with multi_model(tmp_path, 2) as rig:
            ask(rig, "a")
            [held] = [number for number in range(2) if rig.loaded(number)]
            rig.fakes[held].close()
            assert ask(rig, "a", b"again") == b"again"
            assert rig.loaded(1 - held) == {"a"}
            settle(rig)

    def test_an_instance_that_dies_while_it_loads_a_model(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 2) as rig, ThreadPoolExecutor(4) as threads:
            first = rig.host.variant.targets.index(ranked("a", rig.host.variant.targets)[0])

            def die(_: Received) -> None:
                rig.fakes[first].break_off()

            rig.fakes[first].on_load = die
            assert set(threads.map(lambda _: ask(rig, "a"), range(4))) == {b"body"}
            assert rig.loaded(1 - first) == {"a"}
            settle(rig)

    def test_a_draining_instance_gets_no_model(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 2) as rig:
            rig.host.variant.targets[0].draining = True
            for number in range(8):
                ask(rig, f"m{number}")
            assert rig.fakes[0].seen == []
            settle(rig)

    def test_few_models_move_when_an_instance_comes(self, tmp_path: Path) -> None:
        with multi_model(tmp_path, 4) as rig:
            targets = rig.host.variant.targets
            names = [f"m{number}" for number in range(1000)]
            before = {name: ranked(name, targets[:3])[0] for name in names}
            after = {name: ranked(name, targets)[0] for name in names}
            moved = [name for name in names if before[name] is not after[name]]
            assert 180 < len(moved) < 320
            assert all(after[name] is targets[3] for name in moved)


class _Lru(OrderedDict[str, None]):
    """What a cache of so many models would do."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.hits = 0

    def ask(self, model: str) -> None:
        if model in self:
            self.hits += 1
            self.move_to_end(model)
            return
        if len(self) >= self.room:
            self.popitem(last=False)
        self[model] = None


def test_the_hit_ratio_of_a_skewed_trace_is_above_that_of_lru(tmp_path: Path) -> None:
    draw = random.Random(7)
    weights = [1 / rank for rank in range(1, 1001)]
    trace = [f"m{number}" for number in draw.choices(range(1000), weights, k=600)]
    lru = _Lru(20)
    for name in trace:
        lru.ask(name)
    with multi_model(tmp_path, room=20) as rig:
        for name in trace:
            ask(rig, name)
        assert sum(rig.host.meter.placements) > 1.2 * lru.hits
        settle(rig)


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_with_faults_leave_nothing_behind(tmp_path: Path, seed: int) -> None:
    """No model is unloaded while it runs (`FakeInstance.broken_rules`), and each request is answered."""
    draw = random.Random(seed)
    lock = threading.Lock()

    def chance(share: float) -> bool:
        with lock:
            return draw.random() < share

    def load(_: Received) -> Reply | None:
        time.sleep(0.002)  # sleeps: the work of a load
        if chance(0.1):
            return OUT_OF_MEMORY
        return Reply(400, b"odd") if chance(0.05) else None

    def run(received: Received) -> Reply:
        time.sleep(0.003)  # sleeps: the work of the model
        if chance(0.03):
            return OUT_OF_MEMORY
        return Reply(200, b"", {"Content-Length": "9"}, breaks=True) if chance(0.02) else echo(received)

    settings = ResidencySettings(failure_s=0.01, disk_high=0.6, disk_low=0.3, spill_inflight=2, spill_s=0.05)
    source = Source(delay_s=0.002, sizes={f"m{number}": number % 3 * MB + 1 for number in range(20)})
    source.missing.add("m13")
    outcomes: Counter[str] = Counter()

    def one(number: int) -> None:
        body = b"%d" % number
        try:
            outcomes["200" if ask(rig, f"m{draw.randrange(20)}", body) == body else "a wrong answer"] += 1
        except ClientError as error:
            outcomes[error.response["Error"]["Code"]] += 1

    with multi_model(
        tmp_path, 2, room=4, settings=settings, source=source, volume_bytes=20 * MB, model_cache=seed != 2
    ) as rig:
        for fake in rig.fakes:
            fake.on_load, fake.invoke = load, run
        with ThreadPoolExecutor(12) as threads:
            list(threads.map(one, range(200)))
        settle(rig)
        assert sum(outcomes.values()) == 200
        assert outcomes["200"] > 100
        assert set(outcomes) == {"200", "ModelError", "ValidationError"}
        for number, fake in enumerate(rig.fakes):
            assert {hash_of(model) for model in rig.loaded(number)} <= set(fake.models)
