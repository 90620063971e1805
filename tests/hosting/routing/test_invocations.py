"""InvokeEndpoint, as boto3 sees it."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError, ResponseStreamingError

from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Container
from halimede.http1.upstream import UpstreamConnection, UpstreamPool
from tests.hosting.http.serving import chunked
from tests.hosting.instances import Received, Reply, echo
from tests.hosting.routing.serving import (
    ACCOUNT,
    ENDPOINT,
    SHORT,
    SMALL,
    Runtime,
    instances,
    invoke,
    one_instance,
    one_process,
    runtime,
    variant_route,
)
from tests.support.waiting import let_pass, wait_until

PATH = f"/endpoints/{ENDPOINT}/invocations"


def error_of(call: ClientError) -> tuple[str, int, str]:
    """Code, status and message."""
    answer = call.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Message"]


class TestWhatIsPassedOn:
    def test_the_body_goes_there_and_back_byte_for_byte(self) -> None:
        body = bytes(range(256)) * 40_000
        with one_instance() as (host, instance):
            answer = invoke(host.client(), body, ContentType="application/x-mine;json-header-size=7")
            assert answer["Body"].read() == body
            assert answer["ContentType"] == "application/x-mine;json-header-size=7"
            assert answer["InvokedProductionVariant"] == "AllTraffic"
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
            [received] = instance.seen
            assert (received.method, received.path, received.body) == ("POST", "/invocations", body)

    @one_process
    def test_headers_there(self) -> None:
        with one_instance() as (host, instance):
            invoke(
                host.client(), ContentType="text/csv", Accept="text/plain", CustomAttributes="trace=1",
                InferenceId="id-1", SessionId="NEW_SESSION",
            )["Body"].read()  # fmt: skip
            [received] = instance.seen
            assert dict(received.headers) == {
                "host": f"127.0.0.1:{instance.port}",
                "content-type": "text/csv",
                "accept": "text/plain",
                "x-amzn-sagemaker-custom-attributes": "trace=1",
                "x-amzn-sagemaker-inference-id": "id-1",
                "x-amzn-sagemaker-session-id": "NEW_SESSION",
                "content-length": "4",
            }  # no credentials, and nothing of the connection

    def test_headers_back(self) -> None:
        headers = {
            "Content-Type": "text/html",
            "X-Amzn-SageMaker-Custom-Attributes": "a=b",
            "X-Amzn-SageMaker-New-Session-Id": "s-1; Expires=2030-01-01T00:00:00Z",
            "X-Amzn-SageMaker-Closed-Session-Id": "s-0",
            "Set-Cookie": "secret=1",
            "Server": "instance",
        }
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, b"x", headers)
            answer = invoke(host.client())
            answer["Body"].read()
            assert answer["ContentType"] == "text/html"
            assert answer["CustomAttributes"] == "a=b"
            assert not {"NewSessionId", "ClosedSessionId"} & answer.keys()  # nobody has asked for a session
            sent = {name.lower() for name in answer["ResponseMetadata"]["HTTPHeaders"]}
            assert not sent & {"set-cookie", "server"}
            assert len(answer["ResponseMetadata"]["RequestId"]) == 36

    def test_request_ids_differ(self) -> None:
        with one_instance() as (host, _):
            client = host.client()
            ids = {invoke(client)["ResponseMetadata"]["RequestId"] for _ in range(5)}
            assert len(ids) == 5

    @pytest.mark.parametrize("sizes", [[1, 2, 3], [70_000] * 10])
    def test_a_chunked_request_is_passed_on_in_chunks(self, sizes: list[int]) -> None:
        body = bytes(range(251)) * 4000
        with one_instance() as (host, instance), host.raw() as client:
            client.send(chunked(body, sizes).replace(b"POST /", b"POST " + PATH.encode(), 1))
            assert client.read().body == body
            assert instance.seen[0].body == body

    @one_process
    def test_a_chunked_request_to_a_slow_instance_ends_once(self) -> None:
        # an instance that reads slowly is written to later; nothing must be sent after the end
        body = b"x" * (8 << 20)
        with one_instance() as (host, instance), host.raw() as client:
            for _ in range(3):
                client.send(chunked(body, [1 << 20] * 8).replace(b"POST /", b"POST " + PATH.encode(), 1))
                assert client.read().body == body
            assert len(instance.seen) == 3
            pool = host.targets[0].pool
            first, second = host.loop.call(lambda: (pool.idle(), pool.idle()))
            assert first is not None
            assert second is None
            host.loop.call(first.close)

    def test_a_chunked_answer_is_passed_back(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, [b"one ", b"two ", b"x" * 500_000])
            assert invoke(host.client())["Body"].read() == b"one two " + b"x" * 500_000

    def test_http_1_0_gets_no_chunks(self) -> None:
        with one_instance() as (host, instance), host.raw() as client:
            instance.invoke = lambda _: Reply(200, [b"one ", b"two"])
            client.send(f"POST {PATH} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
            head, _, body = client.read_to_end().partition(b"\r\n\r\n")
            assert body == b"one two"
            assert b"chunked" not in head

    def test_any_success_is_a_200(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(201, b"made")
            answer = invoke(host.client())
            assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Body"].read()) == (200, b"made")

    def test_many_at_once(self) -> None:
        with one_instance() as (host, instance):
            client = host.client()
            bodies = [b"%d" % number * 1000 for number in range(200)]
            with ThreadPoolExecutor(16) as threads:
                answers = list(threads.map(lambda body: invoke(client, body)["Body"].read(), bodies))
            assert answers == bodies
            assert len(instance.seen) == 200
            assert host.meter.answers == [(200, False)] * 200
            assert host.meter.sent_to == [1] * 200


class TestWhichVariant:
    def test_weights_share_the_traffic(self) -> None:
        with (
            instances(2) as [one, two],
            runtime(variant_route("A", [one], 3.0), variant_route("B", [two], 1.0)) as host,
        ):
            client = host.client()
            counts = Counter(invoke(client)["InvokedProductionVariant"] for _ in range(400))
            assert 240 <= counts["A"] <= 360
            assert (len(one.seen), len(two.seen)) == (counts["A"], counts["B"])

    def test_a_weight_of_zero_gets_nothing_but_what_names_it(self) -> None:
        with (
            instances(2) as [one, two],
            runtime(variant_route("A", [one], 1.0), variant_route("B", [two], 0.0)) as host,
        ):
            client = host.client()
            assert {invoke(client)["InvokedProductionVariant"] for _ in range(50)} == {"A"}
            assert invoke(client, TargetVariant="B")["InvokedProductionVariant"] == "B"

    def test_all_weights_zero(self) -> None:
        with (
            instances(2) as [one, two],
            runtime(variant_route("A", [one], 0.0), variant_route("B", [two], 0.0)) as host,
            pytest.raises(ClientError) as caught,
        ):
            invoke(host.client())
        assert error_of(caught.value)[:2] == ("ValidationError", 400)
        assert "weight 0" in str(caught.value)

    def test_an_unknown_variant(self) -> None:
        with one_instance() as (host, _), pytest.raises(ClientError) as caught:
            invoke(host.client(), TargetVariant="C")
        code, status, message = error_of(caught.value)
        assert (code, status) == ("ValidationError", 400)
        assert message == (
            f"Variant C not found for endpoint {ENDPOINT} of account {ACCOUNT}. Its variants are AllTraffic"
        )

    def test_random_instances_are_all_used(self) -> None:
        with instances(3) as three, runtime(variant_route("A", three)) as host:
            client = host.client()
            for _ in range(60):
                invoke(client)
            assert all(len(each.seen) > 5 for each in three)
            assert host.meter.sent_to == [3] * 60

    def test_the_least_outstanding_instance_is_chosen(self) -> None:
        held = threading.Event()
        begun = threading.Semaphore(0)

        def hold(received: Received) -> Reply:
            begun.release()
            held.wait(60)
            return echo(received)

        with instances(3) as three, runtime(variant_route("A", three, least_outstanding=True)) as host:
            client = host.client()
            for each in three:
                each.invoke = hold
            with ThreadPoolExecutor(9) as threads:
                futures = []
                for _ in range(9):
                    futures.append(threads.submit(invoke, client))
                    assert begun.acquire(timeout=60)
                assert [len(each.seen) for each in three] == [3, 3, 3]
                held.set()
                for future in futures:
                    future.result(60)

    @one_process
    def test_a_draining_instance_gets_nothing(self) -> None:
        with instances(2) as two, runtime(variant_route("A", two)) as host:
            host.targets[0].draining = True
            client = host.client()
            for _ in range(20):
                invoke(client)
            assert [len(each.seen) for each in two] == [0, 20]

    @one_process
    def test_a_draining_instance_is_idle_when_its_last_request_is_answered(self) -> None:
        held, idle = threading.Event(), threading.Event()
        with one_instance() as (host, instance), ThreadPoolExecutor(2) as threads:
            instance.invoke = lambda received: Reply(200, str(held.wait(60)).encode())
            client = host.client()
            futures = [threads.submit(invoke, client) for _ in range(2)]
            wait_until(lambda: len(instance.seen) == 2)
            target = host.targets[0]
            assert target.inflight == 2
            target.on_idle, target.draining = idle.set, True
            with pytest.raises(ClientError) as caught:
                invoke(client)
            assert error_of(caught.value)[:2] == ("ServiceUnavailable", 503)
            assert host.meter.answers == [(503, False)]
            assert not idle.is_set()
            held.set()
            for future in futures:
                assert future.result(60)["Body"].read() == b"True"
            assert idle.wait(60)


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "side"),
        [(400, "client"), (404, "client"), (500, "server"), (503, "server"), (302, "client")],
    )
    def test_the_instance_answers_with_an_error(self, status: int, side: str) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(status, b'{"error": "it is \xc3\xa4 broken"}')
            with pytest.raises(ClientError) as caught:
                invoke(host.client(attempts=3))
            text = '{"error": "it is ä broken"}'
            code, http, message = error_of(caught.value)
            assert (code, http) == ("ModelError", 424)
            assert message == (
                f'Received {side} error ({status}) from primary with message "{text}". See the log group '
                f"/aws/sagemaker/Endpoints/{ENDPOINT} in account {ACCOUNT} for more information."
            )
            answer = caught.value.response
            assert (answer["OriginalStatusCode"], answer["OriginalMessage"]) == (status, text)
            assert answer["LogStreamArn"] == (
                f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:/aws/sagemaker/Endpoints/{ENDPOINT}"
            )
            assert len(instance.seen) == 1
            counted = [(code // 100, is_model) for code, is_model in host.meter.answers]
            assert counted == [(status // 100, True)]
            assert isinstance(caught.value, host.client().exceptions.ModelError)

    def test_the_container_is_called_by_its_hostname(self) -> None:
        with one_instance(container=Container("image", hostname="my-container")) as (host, instance):
            instance.invoke = lambda _: Reply(500)
            with pytest.raises(ClientError, match=r"error \(500\) from my-container with message"):
                invoke(host.client())

    def test_a_long_error_is_cut(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(500, b"x" * 1_000_000)
            with pytest.raises(ClientError) as caught:
                invoke(host.client())
            assert caught.value.response["OriginalMessage"] == "x" * 16_384

    def test_an_unknown_endpoint(self) -> None:
        with one_instance() as (host, _), pytest.raises(ClientError) as caught:
            host.client().invoke_endpoint(EndpointName="nobody", Body=b"")
        assert error_of(caught.value) == (
            "ValidationError", 400, f"Endpoint nobody of account {ACCOUNT} not found."
        )  # fmt: skip

    def test_a_target_model_of_a_single_model_endpoint(self) -> None:
        with one_instance() as (host, instance):
            with pytest.raises(ClientError) as caught:
                invoke(host.client(), TargetModel="m.tar.gz")
            code, status, message = error_of(caught.value)
            assert (code, status) == ("ValidationError", 400)
            assert message.startswith(
                f"Endpoint {ENDPOINT} is not a multi-model endpoint and does not support target model"
            )
            assert instance.seen == []

    def test_no_instance(self) -> None:
        with runtime(variant_route("A", [])) as host:
            with pytest.raises(ClientError) as caught:
                invoke(host.client())
            assert error_of(caught.value)[:2] == ("ServiceUnavailable", 503)
            wait_until(lambda: host.is_idle)

    @pytest.mark.parametrize(
        ("line", "status"),
        [(f"GET {PATH}", 405), (f"POST /endpoints/{ENDPOINT}", 404), (f"POST {PATH}/more", 404)],
    )
    def test_other_paths_and_methods(self, line: str, status: int) -> None:
        with one_instance() as (host, _), host.raw() as client:
            assert client.ask(f"{line} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).status == status


class TestLimits:
    def test_a_body_of_the_largest_size(self) -> None:
        with one_instance(SMALL) as (host, _):
            assert invoke(host.client(), b"x" * 1000)["Body"].read() == b"x" * 1000

    def test_a_larger_one_is_refused_before_it_is_received(self) -> None:
        with one_instance(SMALL) as (host, instance):
            with pytest.raises(ClientError) as caught:
                invoke(host.client(), b"x" * 1001)
            code, status, message = error_of(caught.value)
            assert (code, status) == ("RequestEntityTooLargeException", 413)
            assert message == "HTTP content length exceeded 1000 bytes: the payload has 1001 bytes or more"
            assert instance.seen == []

    @pytest.mark.parametrize("sizes", [[], [300, 300, 300, 100]])
    def test_a_larger_one_in_chunks(self, sizes: list[int]) -> None:
        with one_instance(SMALL) as (host, instance), host.raw() as client:
            data = chunked(b"x" * 1001, sizes).replace(b"POST /", b"POST " + PATH.encode(), 1)
            assert client.ask(data).status == 413
            wait_until(lambda: host.is_idle)
            assert instance.seen == []

    def test_a_larger_one_in_chunks_that_come_slowly(self) -> None:
        with one_instance(SMALL) as (host, instance), host.raw() as client:
            data = chunked(b"x" * 1001, [600]).replace(b"POST /", b"POST " + PATH.encode(), 1)
            client.send(data[:-20])
            wait_until(lambda: host.targets[0].outstanding)
            client.send(data[-20:])
            assert client.read().status == 413
            wait_until(lambda: host.is_idle)
            assert instance.seen == []

    def test_an_answer_has_no_limit(self) -> None:
        with one_instance(SMALL) as (host, instance):
            instance.invoke = lambda _: Reply(200, b"x" * (26 << 20))
            assert len(invoke(host.client())["Body"].read()) == 26 << 20


class Clock:
    """The time of which invocations see what a test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ns = monotonic_ns()
        self._checks = 0
        monkeypatch.setattr("halimede.hosting.routing.invocation.monotonic_ns", lambda: self._ns)
        monkeypatch.setattr("halimede.hosting.routing.invocations.monotonic_ns", self._check)

    def _check(self) -> int:
        self._checks += 1
        return self._ns

    def advance(self, seconds: float) -> None:
        """Return when those have passed, and the deadlines of all invocations have been looked at."""
        self._ns += round(seconds * 1e9)
        enough = self._checks + 2
        wait_until(lambda: self._checks >= enough, "the deadlines to be looked at")


class TestTimes:
    def test_an_instance_that_takes_too_long(self) -> None:
        held = threading.Event()
        with one_instance(SHORT) as (host, instance):
            instance.invoke = lambda _: Reply(200, str(held.wait(60)).encode())
            with pytest.raises(ClientError) as caught:
                invoke(host.client(attempts=3))
            assert error_of(caught.value)[:2] == ("ModelError", 424)
            assert caught.value.response["OriginalStatusCode"] == 0
            assert "Your invocation timed out while waiting for a response from container primary" in str(
                caught.value
            )
            assert len(instance.seen) == 1  # nothing is sent twice
            assert host.meter.answers == [(500, True)]
            wait_until(lambda: host.is_idle)
            held.set()

    @one_process
    def test_a_client_that_sends_slowly_takes_none_of_the_instances_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch)
        with one_instance() as (host, _), host.raw() as client:
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 10\r\n\r\n".encode())
            client.send(b"x" * 5)
            wait_until(lambda: host.targets[0].outstanding)
            clock.advance(100)  # an instance has 60 seconds
            client.send(b"x" * 5)
            assert client.read().body == b"x" * 10

    @one_process
    def test_a_client_that_reads_slowly_takes_none_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        paused = threading.Event()
        pause = UpstreamConnection.pause

        def pause_and_tell(connection: UpstreamConnection) -> None:
            pause(connection)
            paused.set()

        monkeypatch.setattr(UpstreamConnection, "pause", pause_and_tell)
        size = 16 << 20
        with one_instance() as (host, instance), host.raw() as client:
            instance.invoke = lambda _: Reply(200, b"x" * size)
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode())
            assert paused.wait(60)
            host.loop.call(lambda: None)  # what has paused has been done
            clock.advance(100)
            assert len(client.read().body) == size

    def test_an_instance_that_accepts_no_connection_in_time(self) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
            port = full.getsockname()[1]
            route = variant_route("A", [])
            route.targets.append(Target("i", UpstreamPool("127.0.0.1", port)))
            with runtime(route, settings=SHORT) as host:
                fillers = [socket.socket() for _ in range(8)]
                for each in fillers:
                    each.setblocking(False)
                    each.connect_ex(("127.0.0.1", port))
                with pytest.raises(ClientError, match="timed out while waiting"):
                    invoke(host.client())
                wait_until(lambda: host.is_idle)
                for each in fillers:
                    each.close()


class TestInstancesThatDie:
    def test_before_the_answer(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, b"", breaks=True, headers={"Content-Length": "0"})
            instance.break_off()
            client = host.client()
            assert invoke(client)["Body"].read() == b""  # which has an idle connection left that is broken
            wait_until(lambda: host.loop.call(lambda: host.targets[0].pool.idle()) is None)
            instance.close()
            with pytest.raises(ClientError) as caught:
                invoke(client)
            assert error_of(caught.value)[:2] == ("ModelError", 424)
            assert "accepts no connection" in str(caught.value)

    def test_while_others_live_which_take_what_was_not_sent(self) -> None:
        with instances(3) as fakes, runtime(variant_route("A", fakes)) as host:
            client = host.client()
            fakes[1].close()
            for _ in range(30):
                assert invoke(client, b"x")["Body"].read() == b"x"
            fakes[0].close()
            wait_until(lambda: host.loop.call(lambda: host.targets[0].pool.idle()) is None)
            for _ in range(30):
                assert invoke(client, b"x")["Body"].read() == b"x"
            fakes[2].close()
            with pytest.raises(ClientError, match="accepts no connection"):
                invoke(client)
            assert host.meter.sent_to == [3] * len(host.meter.answers)

    def test_with_the_request(self) -> None:
        with one_instance() as (host, instance):

            def die(_: Received) -> Reply:
                instance.break_off()
                return Reply()

            instance.invoke = die
            with pytest.raises(ClientError) as caught:
                invoke(host.client(attempts=3))
            assert error_of(caught.value)[:2] == ("ModelError", 424)
            assert caught.value.response["OriginalStatusCode"] == 0
            assert len(instance.seen) == 1

    def test_within_the_answer(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, b"x" * 100_000, {"Content-Length": "200000"}, breaks=True)
            with pytest.raises(ResponseStreamingError):
                invoke(host.client())["Body"].read()
            wait_until(lambda: host.meter.answers == [(500, True)])

    def test_within_an_answer_in_chunks(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, [b"x" * 1000], breaks=True)
            with pytest.raises(ResponseStreamingError):
                invoke(host.client())["Body"].read()
            wait_until(lambda: host.is_idle)

    def test_a_malformed_answer(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, b"", {"Content-Length": "ten"})
            with pytest.raises(ClientError, match="the response is malformed"):
                invoke(host.client())
            assert host.meter.answers == [(500, True)]


class TestClients:
    def test_one_that_gives_up_frees_the_instance(self) -> None:
        held = threading.Event()
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, str(held.wait(60)).encode())
            with pytest.raises(ReadTimeoutError):
                invoke(host.client(read_timeout=0.2))
            wait_until(lambda: host.is_idle)
            held.set()
            assert host.meter.answers == [(499, False)]

    def test_one_that_goes_before_its_request_is_complete(self) -> None:
        with one_instance() as (host, instance):
            client = host.raw()
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 10\r\n\r\n12345".encode())
            wait_until(lambda: host.targets[0].outstanding)
            client.vanish()
            wait_until(lambda: host.is_idle)
            assert instance.seen == []

    def test_one_that_goes_within_the_answer(self) -> None:
        with one_instance() as (host, instance):
            instance.invoke = lambda _: Reply(200, b"x" * (64 << 20))
            client = host.raw()
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode())
            client.read_line()
            client.vanish()
            wait_until(lambda: host.is_idle)
            assert host.meter.answers == [(499, False)]

    def test_one_that_reads_slowly_is_waited_for_with_little_memory(self) -> None:
        size = 256 << 20
        with one_instance() as (host, instance), host.raw() as client:
            sent = [0]

            def pieces() -> Iterator[bytes]:
                for _ in range(size >> 20):
                    yield b"x" * (1 << 20)
                    sent[0] += 1 << 20

            instance.invoke = lambda _: Reply(200, pieces())
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode())
            wait_until(lambda: sent[0])
            let_pass(0.3, "nothing shows that no more is sent")
            assert sent[0] < 32 << 20  # what the sockets hold
            client.__exit__()
            wait_until(lambda: host.is_idle)

    def test_a_malformed_body_gives_the_request_up(self) -> None:
        with one_instance() as (host, instance), host.raw() as client:
            client.send(f"POST {PATH} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".encode())
            wait_until(lambda: host.targets[0].outstanding)
            client.send(b"zz\r\n")
            assert client.read().status == 400
            wait_until(lambda: host.is_idle)
            assert instance.seen == []


def test_an_answer_before_the_request_is_complete_is_passed_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        route = variant_route("A", [])
        route.targets.append(Target("i", UpstreamPool("127.0.0.1", listener.getsockname()[1])))
        with runtime(route) as host, host.raw() as client:
            client.send(f"POST {PATH} HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n12345".encode())
            peer, _ = listener.accept()
            with peer:
                assert peer.recv(65_536).endswith(b"12345")
                peer.sendall(b"HTTP/1.1 413 No\r\nContent-Length: 5\r\n\r\nlarge")
                answer = client.read()
                assert (answer.status, answer.headers["connection"]) == (424, "close")
                assert b'"OriginalStatusCode":413' in answer.body
            assert _is_idle(host)


def _is_idle(host: Runtime) -> bool:
    wait_until(lambda: host.is_idle)
    return True
