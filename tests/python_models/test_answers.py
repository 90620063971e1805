"""What `execute` returns, and what the client gets for it."""

import json
import threading
import urllib.request

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import (
    BATCHED,
    FLOATS,
    ONES,
    Models,
    answering,
    executing,
    grpc_inputs,
    http_inputs,
)
from tests.support.waiting import wait_until

IN_SERVER_TOO = True

GOOD = "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(2, np.float32))])"


def prefix(model: str) -> str:
    return f"Failed to process the request(s) for model '{model}_0', message: "


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "return []",
            (
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"
            ),
        ),
        (f"return [{GOOD}, {GOOD}]", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2\n"),
        (f"return ({GOOD},)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        (f"return {GOOD}", "Expected a list in the execute return, found type '<class "),
        ("return {}", "Expected a list in the execute return, found type '<class 'dict'>'."),
        ("return 0", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("yield 1", "Expected a list in the execute return, found type '<class 'generator'>'."),
        (
            "return ['text']",
            (
                "Expected an 'InferenceResponse' object in the execute function return list, "
                "found type '<class 'str'>'."
            ),
        ),
        (
            "return [requests[0]]",
            "Expected an 'InferenceResponse' object in the execute function return list",
        ),
        ("return [None]", "returned None for a request and never asked for its response sender"),
        ("return None", "returned None for a request and never asked for its response sender"),
        ("requests[0].get_response_sender()", "let go of the response sender of a request without a final"),
        ("requests[0].get_response_sender(); return [None]", "let go of the response sender"),
        ("1 / 0", "ZeroDivisionError: division by zero\n\nAt:\n"),
        ("raise SystemExit(3)", "SystemExit: 3\n\nAt:\n"),
        ("sys.exit()", "SystemExit: "),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n"),
        ("raise GeneratorExit", "GeneratorExit: <EMPTY MESSAGE>\n\nAt:\n"),
        ("raise MemoryError", "MemoryError: <EMPTY MESSAGE>\n\nAt:\n"),
        ("np.empty(2**57)", "MemoryError: Unable to allocate"),
        ("raise UnicodeEncodeError('ascii', '\\ud800', 0, 1, 'bad')", "UnicodeEncodeError"),
        ("raise ValueError('\\ud800')", "ValueError: \\ud800"),
        ("raise ValueError('x' * 300000)", "x" * 300000),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: maximum recursion depth exceeded"),
        ("raise ValueError('outer') from KeyError('inner')", "ValueError: outer\n\nAt:\n"),
    ],
)
def test_whatever_execute_does_the_client_reads_why(models: Models, body: str, text: str) -> None:
    name = models.load(executing(body))
    status, message = models.infer_error(name)
    assert status == "500"
    assert text in message
    if "let go" not in text:
        assert message.startswith(prefix(name))
    # and the process goes on
    pid = models.pids(name)
    assert models.infer_error(name)[0] == "500"
    assert models.pids(name) == pid


def test_executions_that_raise_count_as_executions_but_their_rows_do_not(models: Models) -> None:
    name = models.load(executing("raise ValueError('no')"))
    models.infer_error(name)
    models.infer_error(name)
    statistics = models.statistics(name)
    assert (statistics["execution_count"], statistics["inference_count"]) == (2, 0)
    assert statistics["last_inference"] > 0
    (batch,) = statistics["batch_stats"]
    assert batch["batch_size"] == 1
    for phase in ("compute_input", "compute_infer", "compute_output"):
        assert batch[phase]["count"] == 2
        assert statistics["inference_stats"][phase] == {"count": 0, "ns": 0}
    counts = {key: value["count"] for key, value in statistics["inference_stats"].items()}
    assert (counts["fail"], counts["success"], counts["queue"]) == (2, 0, 0)


def test_failed_batch_is_logged_with_its_reason(models: Models) -> None:
    name = models.load(executing("raise ValueError('look into the log')"))
    models.infer_error(name)
    models.server.wait_for(f"{prefix(name)}ValueError: look into the log")


def test_error_of_a_response_has_its_status(models: Models) -> None:
    name = models.load(
        executing("""
            code = getattr(pb_utils.TritonError, json.loads(requests[0].parameters())["code"])
            error = pb_utils.TritonError("by code", code)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))], error)]
        """)
    )
    http, grpc = {}, {}
    text = "UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED"
    codes = text.split()
    for code in codes:
        with pytest.raises(InferenceServerException, match="by code") as caught:
            models.http.infer(name, http_inputs(IN=ONES), parameters={"code": code})
        http[code] = caught.value.status()
        with pytest.raises(InferenceServerException, match="by code") as caught:
            models.grpc.infer(name, grpc_inputs(IN=ONES), parameters={"code": code})
        grpc[code] = str(caught.value.status()).removeprefix("StatusCode.")
    assert http == dict(zip(codes, ["400", "500", "404", "400", "503", "501", "400", "400"], strict=True))
    expected = (
        "UNKNOWN INTERNAL NOT_FOUND INVALID_ARGUMENT UNAVAILABLE UNIMPLEMENTED ALREADY_EXISTS CANCELLED"
    )
    assert grpc == dict(zip(codes, expected.split(), strict=True))


def test_error_text_that_is_no_unicode_is_an_error_itself(models: Models) -> None:
    name = models.load(
        executing("return [pb_utils.InferenceResponse([], pb_utils.TritonError('half \\ud800 of a pair'))]")
    )
    assert "message is not valid Unicode" in models.infer_error(name)[1]


def test_requests_that_run_together_are_one_execution(models: Models) -> None:
    name = models.load(answering("x + len(requests)"), BATCHED)
    outcomes = models.infer_at_once(name, [np.full((1, 2), i, np.float32) for i in range(4)])
    for index, outcome in enumerate(outcomes):
        np.testing.assert_array_equal(outcome, np.full((1, 2), index + 4))
    statistics = models.statistics(name)
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 4)
    assert statistics["inference_stats"]["success"]["count"] == 4
    assert [
        (batch["batch_size"], batch["compute_infer"]["count"]) for batch in statistics["batch_stats"]
    ] == [(4, 1)]


def test_rows_count_in_statistics(models: Models) -> None:
    config = (
        FLOATS
        + "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 2000000 preferred_batch_size: [8] }"
    )
    name = models.load(answering("x"), config)
    models.infer_at_once(name, [np.zeros((2, 1), np.float32) for _ in range(4)])
    statistics = models.statistics(name)
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 8)
    assert statistics["inference_stats"]["success"]["count"] == 4


def test_error_of_one_response_is_only_for_its_request(models: Models) -> None:
    name = models.load(
        executing("""
            responses = []
            for request in requests:
                x = request.inputs()[0].as_numpy()
                error = pb_utils.TritonError("seven is bad", pb_utils.TritonError.INVALID_ARG) if x[0, 0] == 7 else None
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)], error))
            return responses
        """),
        BATCHED,
    )
    outcomes = models.infer_at_once(name, [np.full((1, 1), i, np.float32) for i in (5, 6, 7, 8)])
    assert isinstance(outcomes[2], InferenceServerException)
    assert outcomes[2].message() == "seven is bad"
    assert [float(o[0, 0]) for i, o in enumerate(outcomes) if i != 2] == [5, 6, 8]
    statistics = models.statistics(name)
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 4)
    assert statistics["inference_stats"]["success"]["count"] == 3
    assert statistics["inference_stats"]["fail"]["count"] == 1


def test_exception_fails_every_request_of_the_batch(models: Models) -> None:
    name = models.load(executing("raise ValueError(len(requests))"), BATCHED)
    outcomes = models.infer_at_once(name, [np.zeros((1, 1), np.float32)] * 4)
    assert all("ValueError: 4" in str(outcome) for outcome in outcomes)
    statistics = models.statistics(name)
    assert statistics["execution_count"] == 1
    assert statistics["inference_stats"]["fail"]["count"] == 4


def test_exception_after_some_were_answered_leaves_those_their_answers(models: Models) -> None:
    name = models.load(
        executing("""
            for request in requests[:2]:
                x = request.inputs()[0].as_numpy()
                response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])
                request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            raise ValueError("the others")
        """),
        BATCHED,
    )
    outcomes = models.infer_at_once(name, [np.full((1, 1), i, np.float32) for i in range(4)])
    assert [type(outcome) for outcome in outcomes] == [np.ndarray, np.ndarray] + [
        InferenceServerException
    ] * 2


def test_answers_of_a_batch_may_be_mixed(models: Models) -> None:
    name = models.load(
        executing("""
            def response(request):
                return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            first, second, third, fourth = requests
            first.get_response_sender().send(response(first), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            late, answer = second.get_response_sender(), response(second)
            threading.Timer(0.05, lambda: late.send(answer, 1)).start()
            return [None, None, response(third), None]
        """),
        BATCHED,
    )
    outcomes = models.infer_at_once(name, [np.full((1, 1), i, np.float32) for i in range(4)])
    assert [float(outcome[0, 0]) for outcome in outcomes[:3]] == [0, 1, 2]
    assert "returned None for a request" in str(outcomes[3])
    assert models.statistics(name)["inference_stats"]["success"]["count"] == 3


def test_one_response_may_answer_two_requests(models: Models) -> None:
    name = models.load(
        executing("""
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full((1, 3), 9, np.float32))])
            return [response] * len(requests)
        """),
        BATCHED,
    )
    outcomes = models.infer_at_once(name, [np.zeros((1, 1), np.float32)] * 4)
    assert all(outcome.tolist() == [[9, 9, 9]] for outcome in outcomes)


def test_one_array_may_be_the_output_of_several_responses(models: Models) -> None:
    name = models.load(
        executing("""
            array = np.full((1, 50000), 3, np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for _ in requests]
        """),
        BATCHED,
    )
    outcomes = models.infer_at_once(name, [np.zeros((1, 1), np.float32)] * 4)
    assert all((outcome == 3).all() for outcome in outcomes)


def test_tensors_of_one_name_all_reach_the_client(models: Models) -> None:
    name = models.load(
        executing("""
            tensors = [pb_utils.Tensor("OUT", np.full(1, value, np.float32)) for value in (1, 2)]
            return [pb_utils.InferenceResponse(tensors) for _ in requests]
        """)
    )
    answer = models.http.infer(name, http_inputs(IN=ONES)).get_response()
    assert [output["name"] for output in answer["outputs"]] == ["OUT", "OUT"]
    response = models.grpc.infer(name, grpc_inputs(IN=ONES)).get_response()
    assert [output.name for output in response.outputs] == ["OUT", "OUT"]
    assert list(response.raw_output_contents) == [np.float32(value).tobytes() for value in (1, 2)]


def test_tensors_of_one_name_all_reach_a_model_that_calls(models: Models) -> None:
    called = models.load(
        executing("""
            tensors = [pb_utils.Tensor("OUT", np.full(1, value, np.float32)) for value in (1, 2)]
            return [pb_utils.InferenceResponse(tensors)]
        """)
    )
    caller = models.load(
        executing(f"""
            called = pb_utils.InferenceRequest(
                model_name="{called}", inputs=requests[0].inputs(), requested_output_names=["OUT"]
            ).exec()
            values = [tensor.as_numpy() for tensor in called.output_tensors()]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate(values))])]
        """)
    )
    assert models.infer(caller).tolist() == [1, 2]


def test_rescheduling_without_iterative_sequences_is_an_error(models: Models) -> None:
    name = models.load(
        executing(
            "requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE); return [None]"
        )
    )
    assert models.infer_error(name)[1] == (
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle "
        "such a flag. It needs sequence_batching { iterative_sequence: true }"
    )


def test_response_for_a_rescheduled_request_is_an_error(models: Models) -> None:
    name = models.load(
        executing(f"""
            requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [{GOOD}]
        """)
    )
    assert models.infer_error(name)[1].startswith(
        prefix(name)
        + "Expected a None object in the execute function return list for reschduled request, found type '<class "
    )


# Response senders of a model that is not decoupled

SENDERS = """
    FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    request = requests[0]
    sender = request.get_response_sender()
    response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy() + 1)])
"""


def sending(body: str) -> str:
    return executing(SENDERS + body)


@pytest.mark.parametrize(
    "body",
    [
        "    sender.send(response, FINAL)\n    return [None]\n",
        "    sender.send(response, FINAL)\n    return None\n",
        "    sender.send(response)\n    sender.send(flags=FINAL)\n    return None\n",
        "    sender.send(response)\n    return None\n",
        "    sender.send(response)\n    return [response]\n",
        "    threading.Thread(target=sender.send, args=(response, FINAL)).start()\n    return None\n",
        "    threading.Timer(0.1, lambda: sender.send(response, FINAL)).start()\n    return [None]\n",
        "    t = threading.Thread(target=sender.send, args=(response, 1)); t.start(); t.join()\n    return [None]\n",
        "    return [response]\n",
    ],
)
def test_sender_of_a_default_model_answers_once(models: Models, body: str) -> None:
    name = models.load(sending(body))
    for _ in range(3):
        assert models.infer(name).tolist() == [2, 2, 2, 2]
    wait_until(lambda: models.statistics(name)["inference_stats"]["success"]["count"] == 3, "three answers")
    assert models.statistics(name)["inference_stats"]["fail"]["count"] == 0


@pytest.mark.parametrize(
    ("misuse", "text"),
    [
        ("sender.send(response, 5)", "Unable to send response. Unsupported flag provided."),
        (
            "sender.send()",
            "Inference Response object must be provided when the response flags is set to zero.",
        ),
        (
            "sender.send(response); sender.send(response)",
            "Unable to send response. Non-decoupled model cannot send more than one response.",
        ),
        (
            "sender.send(flags=FINAL)",
            "Unable to send response. Non-decoupled model cannot send complete final before sending a response.",
        ),
        (
            "sender.send(response, FINAL); sender.send(flags=FINAL)",
            "Unable to send response. Response sender has been closed.",
        ),
        ("sender.send(5)", "incompatible function arguments"),
    ],
)
def test_misuse_of_a_sender_is_told_to_the_model(models: Models, misuse: str, text: str) -> None:
    name = models.load(
        sending(f"""
    try:
        {misuse}
    except Exception as error:
        print("the model was told:", error)
    else:
        print("the model was told nothing")
    return [response]
""")
    )
    assert models.infer(name).tolist() == [2, 2, 2, 2]
    models.server.wait_for(f"model '{name}' version 1: the model was told:")
    line = next(
        line for line in models.server.log.splitlines() if f"'{name}' version 1: the model was" in line
    )
    assert text in line


def test_error_may_be_sent_by_a_sender(models: Models) -> None:
    name = models.load(
        sending("""
    error = pb_utils.TritonError("not today", pb_utils.TritonError.UNAVAILABLE)
    sender.send(pb_utils.InferenceResponse(error=error), FINAL)
    return None
""")
    )
    assert models.infer_error(name) == ("503", "not today")


def test_late_answers_do_not_keep_others_waiting(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            waiting = []
            def execute(self, requests):
                sender = requests[0].get_response_sender()
                x = requests[0].inputs()[0].as_numpy()
                self.waiting.append((sender, pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])))
                if x[0] == 0:
                    while self.waiting:
                        sender, response = self.waiting.pop()
                        sender.send(response, 1)
        """
    )
    arrays = [np.full(1, i, np.float32) for i in (3, 2, 1, 0)]
    assert [float(outcome[0]) for outcome in models.infer_at_once(name, arrays)] == [3, 2, 1, 0]


def test_late_answer_reaches_its_client_while_the_model_is_being_unloaded(models: Models) -> None:
    name = models.load(sending("    threading.Timer(0.3, lambda: sender.send(response, FINAL)).start()\n"))
    results: list[object] = []
    inputs = grpc_inputs(IN=ONES)
    thread = threading.Thread(
        target=lambda: results.append(models.grpc.infer(name, inputs).as_numpy("OUT").tolist())
    )
    thread.start()
    wait_until(lambda: models.statistics(name)["execution_count"] == 1, "the execution")
    models.http.unload_model(name)
    thread.join()
    assert results == [[2, 2, 2, 2]]


# Parameters


def test_parameters_reach_the_model_and_come_back(models: Models) -> None:
    name = models.load(
        executing("""
            given = json.loads(requests[0].parameters())
            print("given", sorted(given.items()))
            back = {key: given[key] for key in ("text", "number", "truth")}
            back["id"] = requests[0].request_id()
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))], parameters=back)]
        """)
    )
    sent = {"text": "ä", "number": -5, "truth": True}
    response = models.http.infer(name, http_inputs(IN=ONES), parameters=sent, request_id="r1").get_response()
    assert response["parameters"].items() >= {**sent, "id": "r1"}.items()
    parameters = (
        models.grpc.infer(name, grpc_inputs(IN=ONES), parameters=sent, request_id="r2")
        .get_response()
        .parameters
    )
    assert parameters["text"].string_param == "ä"
    assert parameters["number"].int64_param == -5
    assert parameters["truth"].bool_param is True
    assert parameters["id"].string_param == "r2"


def test_reserved_parameters_are_not_the_models(models: Models) -> None:
    name = models.load(
        executing("""
            request = requests[0]
            back = {"seen": request.parameters(), "timeout": request.timeout(), "flags": request.flags(),
                    "correlation": str(request.correlation_id()), "outputs": ",".join(request.requested_output_names())}
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))], parameters=back)]
        """)
    )
    result = models.http.infer(
        name,
        http_inputs(IN=ONES),
        sequence_id=7,
        sequence_start=True,
        sequence_end=True,
        timeout=5_000_000,
        priority=1,
    )
    seen = result.get_response()["parameters"]
    assert (
        seen.items()
        >= {"seen": "{}", "timeout": 5000000, "flags": 3, "correlation": "7", "outputs": "OUT"}.items()
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2**63 - 1", 2**63 - 1),
        ("-2**63", -(2**63)),
        ("2**64 - 1", 2**64 - 1),
        ("2**70", 2.0**70),
        ("'\\x00ü'", "\x00ü"),
    ],
)
def test_unusual_response_parameters_reach_the_client(models: Models, value: str, expected: object) -> None:
    name = models.load(
        executing(f"""
            tensor = pb_utils.Tensor("OUT", np.ones(1, np.float32))
            return [pb_utils.InferenceResponse([tensor], parameters={{"p": {value}}})]
        """)
    )
    assert models.http.infer(name, http_inputs(IN=ONES)).get_response()["parameters"]["p"] == expected
    models.grpc.infer(name, grpc_inputs(IN=ONES))


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("{'p': 1.5}", "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ("{1: 'p'}", "Expect parameters keys to have type str, found type <class 'int'>"),
        ("['p']", "Expect N8pybind114dictE, got <class 'list'>"),
        ("{'p': '\\ud800'}", "Expect parameters to be valid Unicode: "),
    ],
)
def test_parameters_of_another_kind_are_an_error(models: Models, parameters: str, text: str) -> None:
    name = models.load(executing(f"return [pb_utils.InferenceResponse([], parameters={parameters})]"))
    assert text in models.infer_error(name)[1]


def test_plain_json_request_is_served(models: Models) -> None:
    name = models.load(answering("x * 2"))
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}]}
    url = f"http://{models.server.http}/v2/models/{name}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as response:
        answer = json.load(response)
    assert answer["outputs"] == [{"name": "OUT", "datatype": "FP32", "shape": [2], "data": [3.0, 4.0]}]
