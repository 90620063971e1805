"""Decoupled models over gRPC streams, and coroutines of both kinds."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import (
    BATCHED,
    DECOUPLED,
    FLOATS,
    ONES,
    Answer,
    Models,
    Stream,
    executing,
    grpc_inputs,
    http_inputs,
)
from tests.support.waiting import let_pass, wait_until

IN_SERVER_TOO = True

STREAMED = FLOATS + DECOUPLED

HELPERS = """
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
def response(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values, np.float32))])
def failure(text):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))
"""


def streaming(body: str) -> str:
    """A decoupled model that does this with the `sender` of a request."""
    return HELPERS + executing("request = requests[0]\nsender = request.get_response_sender()\n" + body)


@pytest.fixture
def stream(models: Models) -> Iterator[Stream]:
    stream = Stream(models)
    yield stream
    stream.close(cancel=True)


def values(answers: list[Answer]) -> list[float | None]:
    return [answer.value for answer in answers]


def test_responses_come_in_the_order_of_sending(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("for i in range(200): sender.send(response(i))\nsender.send(flags=FINAL)"), STREAMED
    )
    stream.send(name)
    answers = stream.take_all(201)
    assert values(answers) == [*range(200), None]
    assert [answer.final for answer in answers] == [False] * 200 + [True]


def test_last_response_may_carry_data(models: Models, stream: Stream) -> None:
    name = models.load(streaming("sender.send(response(1)); sender.send(response(2), FINAL)"), STREAMED)
    stream.send(name)
    assert [(answer.value, answer.final) for answer in stream.take_all(2)] == [(1, False), (2, True)]


def test_statistics_count_responses_by_their_index(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming('sender.send(response(1)); sender.send(failure("no")); sender.send(flags=FINAL)'), STREAMED
    )
    for _ in range(2):
        stream.send(name)
        stream.take_all(3)
    counted = {
        index: {what: duration["count"] for what, duration in durations.items() if duration["count"]}
        for index, durations in models.statistics(name)["response_stats"].items()
    }
    assert counted == {
        "0": {"compute_infer": 2, "compute_output": 2, "success": 2},
        "1": {"compute_infer": 2, "compute_output": 2, "fail": 2},
        "2": {"compute_infer": 2, "empty_response": 2},
    }


def test_request_may_have_no_response(models: Models, stream: Stream) -> None:
    name = models.load(streaming("sender.send(flags=FINAL)"), STREAMED)
    stream.send(name)
    answer = stream.take()
    assert (answer.array, answer.final, answer.error) == (None, True, "")


@pytest.mark.parametrize("returned", ["[]", "[None]", "[response(1)]", "'text'", "0", "False"])
def test_decoupled_execute_must_return_none(models: Models, stream: Stream, returned: str) -> None:
    name = models.load(streaming(f"return {returned}"), STREAMED)
    stream.send(name)
    assert stream.take().error == (
        f"Failed to process the request(s) for model '{name}_0', message: Python model '{name}_0' is using the "
        "decoupled mode and the execute function must return None."
    )


def test_error_in_a_stream_does_not_end_it(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("sender.send(failure('first')); sender.send(response(2)); sender.send(flags=FINAL)"),
        STREAMED,
    )
    stream.send(name)
    answers = stream.take_all(3)
    assert answers[0].error == "first"
    assert (answers[1].value, answers[2].final) == (2, True)


def test_exception_after_responses_is_the_last_answer(models: Models, stream: Stream) -> None:
    name = models.load(streaming("sender.send(response(1)); raise ValueError('then it broke')"), STREAMED)
    stream.send(name)
    first, second = stream.take_all(2)
    assert first.value == 1
    assert "ValueError: then it broke\n\nAt:\n" in second.error


def test_exception_after_the_last_response_is_only_logged(models: Models, stream: Stream) -> None:
    name = models.load(streaming("sender.send(response(1), FINAL); raise ValueError('too late')"), STREAMED)
    stream.send(name)
    assert stream.take().value == 1
    models.server.wait_for(f"model '{name}_0', message: ValueError: too late")
    stream.send(name)
    assert stream.take().value == 1


def test_sending_after_the_last_response_is_an_error_in_the_model(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("""
sender.send(flags=FINAL)
try:
    sender.send(response(1))
except pb_utils.TritonModelException as error:
    print("the sender said:", error)
"""),
        STREAMED,
    )
    stream.send(name)
    assert stream.take().final
    models.server.wait_for(
        f"model '{name}' version 1: the sender said: Unable to send response. Response sender has been closed."
    )


@pytest.mark.parametrize("body", ["return None", "sender.send(response(1))", "del sender, request, requests"])
def test_sender_that_is_dropped_without_a_last_response_is_an_error(
    models: Models, stream: Stream, body: str
) -> None:
    name = models.load(streaming(body), STREAMED)
    stream.send(name)
    answer = stream.take()
    if "send(" in body:
        assert answer.value == 1
        answer = stream.take()
    assert (
        f"the model '{name}' let go of the response sender of a request without a final response"
        in answer.error
    )


def test_threads_send_after_execute_returned(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("""
x = request.inputs()[0].as_numpy()
def work():
    for i in range(3):
        sender.send(response(float(x[0]) + i))
    sender.send(flags=FINAL)
threading.Thread(target=work).start()
"""),
        STREAMED,
    )
    for request_id in "abcdef":
        stream.send(name, request_id=request_id)
    answers = stream.take_all(24)
    for request_id in "abcdef":
        mine = [answer for answer in answers if answer.request_id == request_id]
        assert values(mine) == [1, 2, 3, None]


def test_threads_may_share_a_sender(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("""
threads = [threading.Thread(target=lambda: [sender.send(response(i)) for i in range(50)]) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sender.send(flags=FINAL)
"""),
        STREAMED,
    )
    stream.send(name)
    answers = stream.take_all(401)
    assert sorted(values(answers[:-1])) == sorted(list(range(50)) * 8)  # type: ignore[type-var]
    assert answers[-1].final


def test_one_array_may_be_sent_many_times_with_other_values(models: Models, stream: Stream) -> None:
    name = models.load(
        streaming("""
array = np.zeros(100000, np.float32)
for i in range(40):
    array[:] = i
    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
sender.send(flags=FINAL)
"""),
        STREAMED,
    )
    stream.send(name)
    for i in range(40):
        answer = stream.take()
        assert answer.array is not None
        assert (answer.array == i).all()
    assert stream.take().final


def test_batch_of_a_decoupled_model_is_answered_one_by_one(models: Models, stream: Stream) -> None:
    name = models.load(
        HELPERS
        + executing("""
            for request in reversed(requests):
                sender = request.get_response_sender()
                sender.send(response(len(requests)), FINAL)
        """),
        BATCHED + DECOUPLED,
    )
    for request_id in "abcd":
        stream.send(name, ONES.reshape(1, 4), request_id)
    assert [(answer.request_id, answer.value) for answer in stream.take_all(4)] == [(i, 4) for i in "dcba"]
    wait_until(lambda: models.statistics(name)["execution_count"] == 1, "the end of the execution")
    assert models.statistics(name)["inference_count"] == 4


def test_http_infer_of_a_decoupled_model_says_why_not(models: Models) -> None:
    name = models.load(streaming("sender.send(response(1), FINAL)"), STREAMED)
    assert models.infer_error(name) == (
        "501", "HTTP end point doesn't support models with decoupled transaction policy",
    )  # fmt: skip


def test_unary_grpc_infer_of_a_decoupled_model_says_why_not(models: Models) -> None:
    name = models.load(streaming("sender.send(response(1), FINAL)"), STREAMED)
    with pytest.raises(InferenceServerException, match="decoupled transaction policy") as caught:
        models.grpc.infer(name, grpc_inputs(IN=ONES))
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_slow_reader_holds_the_model_back(models: Models, stream: Stream) -> None:
    name = models.load(
        HELPERS
        + """
class TritonPythonModel:
    sent = 0
    def execute(self, requests):
        request = requests[0]
        sender = request.get_response_sender()
        if request.request_id() == "count":
            sender.send(response(self.sent), FINAL)
            return
        def work():
            payload = np.ones(1000000, np.float32)
            for i in range(200):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", payload)]))
                self.sent += 1
            sender.send(flags=FINAL)
        threading.Thread(target=work).start()
""",
        STREAMED,
    )
    # a client that reads nothing: a raw call whose iterator is not advanced
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    channel = grpc.insecure_channel(models.server.grpc, [("grpc.max_receive_message_length", -1)])
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request = service_pb2.ModelInferRequest(model_name=name)
    tensor = request.inputs.add(name="IN", datatype="FP32", shape=[1])
    tensor.contents.fp32_contents.append(1)
    more = threading.Event()

    def requests() -> Iterator[service_pb2.ModelInferRequest]:
        yield request
        more.wait(20)

    answers = stub.ModelStreamInfer(requests())

    def sent() -> float:
        stream.send(name, request_id="count")
        value = stream.take().value
        assert value is not None
        return value

    # it sends what there is room for, and then no more
    before = -1.0
    while (now := sent()) != before or now == 0:
        before = now
        let_pass(0.3, "the model may send more meanwhile")
    assert now < 150
    assert sum(1 for _, answer in zip(range(200), answers, strict=False) if not answer.error_message) == 200
    assert sent() == 200
    more.set()
    channel.close()


# Coroutines


def test_coroutine_answers(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            async def execute(self, requests):
                await asyncio.sleep(0)
                tensor = pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy() + 1)
                return [pb_utils.InferenceResponse([tensor])]
        """
    )
    assert models.infer(name).tolist() == [2, 2, 2, 2]


def test_plain_function_may_return_a_coroutine(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            def execute(self, requests):
                return self.work(requests)
            async def work(self, requests):
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))])]
        """
    )
    assert models.infer(name).tolist() == [0]


@pytest.mark.parametrize(
    "setting", ["", 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value { string_value: "3" } }']
)
def test_exception_in_a_coroutine_is_told(models: Models, setting: str) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            async def execute(self, requests):
                await asyncio.sleep(0)
                raise ValueError("in the loop")
        """,
        FLOATS + setting,
    )
    for _ in range(3):
        status, message = models.infer_error(name)
        assert status == "500"
        file = models.repository / name / "1" / "model.py"
        assert message == (
            f"Failed to process the request(s) for model '{name}_0', message: ValueError: in the loop\n\nAt:\n"
            f"  {file}(6): execute\n"
        )


GATHERING = """
class TritonPythonModel:
    running = most = 0
    async def execute(self, requests):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.1)
        self.running -= 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.most], np.float32))])]
"""


def test_coroutines_run_one_by_one_by_default(models: Models) -> None:
    name = models.load(GATHERING)
    outcomes = models.infer_at_once(name, [ONES] * 4)
    assert [float(outcome[0]) for outcome in outcomes] == [1] * 4


def test_so_many_coroutines_run_at_once_as_the_parameter_says(models: Models) -> None:
    name = models.load(
        GATHERING, FLOATS + 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value { string_value: "3" } }'
    )
    outcomes = models.infer_at_once(name, [ONES] * 9)
    assert max(float(outcome[0]) for outcome in outcomes) == 3
    assert models.statistics(name)["inference_stats"]["success"]["count"] == 9


def test_limit_of_coroutines_holds_when_they_are_quick(models: Models) -> None:
    name = models.load(
        GATHERING.replace("sleep(0.1)", "sleep(0)"),
        FLOATS + 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value { string_value: "2" } }',
    )
    for _ in range(50):
        models.infer(name)
    outcomes = models.infer_at_once(name, [ONES] * 200)
    assert max(float(outcome[0]) for outcome in outcomes) <= 2


def test_concurrent_coroutines_may_keep_large_inputs(models: Models) -> None:
    import numpy as np

    name = models.load(
        """
        class TritonPythonModel:
            kept = []
            async def execute(self, requests):
                x = requests[0].inputs()[0].as_numpy()
                self.kept.append((float(x[0]), x))
                await asyncio.sleep(0.001)
                intact = all((array == value).all() for value, array in self.kept)
                self.kept = self.kept[-5:]
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([intact], np.float32))])]
        """,
        FLOATS + 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value { string_value: "4" } }',
    )
    outcomes = models.infer_at_once(name, [np.full(100_000, i, np.float32) for i in range(100)])
    assert [float(outcome[0]) for outcome in outcomes] == [1] * 100


@pytest.mark.parametrize("value", ["0", "-1", "many", "2000", ""])
def test_wrong_number_of_concurrent_executions_is_refused(models: Models, value: str) -> None:
    config = FLOATS + f'parameters {{ key: "MAX_CONCURRENT_EXECUTIONS" value {{ string_value: "{value}" }} }}'
    assert f"the parameter MAX_CONCURRENT_EXECUTIONS must be a number from 1 to 1024; got '{value}'" in (
        models.load_error(GATHERING, config)
    )


def coroutine_streaming(body: str) -> str:
    import textwrap

    head = "class TritonPythonModel:\n    async def execute(self, requests):\n"
    body = (
        "sender = requests[0].get_response_sender()\nx = float(requests[0].inputs()[0].as_numpy()[0])\n"
        + body
    )
    return HELPERS + head + textwrap.indent(body, " " * 8)


def test_decoupled_coroutines_run_side_by_side(models: Models, stream: Stream) -> None:
    name = models.load(
        "ended = 0\n"
        + coroutine_streaming(
            """
global ended
while ended != x - 1:
    await asyncio.sleep(0.005)
sender.send(response(x))
ended = x
await asyncio.sleep(0)
sender.send(flags=FINAL)
"""
        ),
        STREAMED,
    )
    for delay in (3, 1, 2):
        stream.send(name, ONES * delay)
    assert [value for value in values(stream.take_all(6)) if value] == [1, 2, 3]


def test_exception_in_a_decoupled_coroutine_ends_the_request(models: Models, stream: Stream) -> None:
    name = models.load(
        coroutine_streaming("sender.send(response(1))\nraise ValueError('in the middle')"), STREAMED
    )
    stream.send(name)
    first, second = stream.take_all(2)
    assert first.value == 1
    assert "ValueError: in the middle\n\nAt:\n" in second.error
    models.server.wait_for(f"model '{name}_0', message: ValueError: in the middle")


def test_exception_in_a_decoupled_coroutine_after_the_last_response_is_only_logged(
    models: Models, stream: Stream
) -> None:
    name = models.load(
        coroutine_streaming("sender.send(response(1), FINAL)\nraise ValueError('after all')"), STREAMED
    )
    stream.send(name)
    assert stream.take().value == 1
    models.server.wait_for(f"model '{name}_0', message: ValueError: after all")


def test_decoupled_coroutine_that_returns_something_is_an_error(models: Models, stream: Stream) -> None:
    name = models.load(coroutine_streaming("return [response(1)]"), STREAMED)
    stream.send(name)
    assert "is using the decoupled mode and the execute function must return None" in stream.take().error


@pytest.mark.needs_process
def test_blocking_in_a_coroutine_does_not_keep_other_models_waiting(models: Models, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    slow = models.load(
        f"""
        class TritonPythonModel:
            async def execute(self, requests):
                while not os.path.exists("{go_on}"):
                    time.sleep(0.005)
                return [pb_utils.InferenceResponse([])]
        """
    )
    quick = models.load(GATHERING.replace("0.1", "0"))
    done = threading.Event()
    models.grpc.async_infer(slow, grpc_inputs(IN=ONES), lambda result, error: done.set())
    models.http.infer(quick, http_inputs(IN=ONES))
    assert not done.is_set()
    go_on.touch()
    assert done.wait(60)
    wait_until(lambda: models.statistics(slow)["inference_stats"]["success"]["count"] == 1, "its answer")
