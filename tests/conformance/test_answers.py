"""Answers as tables."""

import json

from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.answers import document, flatten, members
from tests.conformance.wire import read_answer, request_bytes


def test_each_value_of_a_document_has_its_path() -> None:
    body = json.dumps({"b": [1, {"c": None}], "a": "x", "empty": [], "none": {}})
    table = {"body.a": "x", "body.b[0]": 1, "body.b[1].c": None, "body.empty": "[]", "body.none": "{}"}
    assert document(body.encode(), "body") == table


def test_the_order_of_members_does_not_matter() -> None:
    assert document(b'{"a":1,"b":2}', "body") == document(b'{"b":2,"a":1}', "body")


def test_a_body_that_is_no_json_is_text() -> None:
    assert document(b"plain \xff", "body") == {"body": "plain \\xff"}


def test_messages_hold_bytes_in_hexadecimal_and_integers_as_numbers() -> None:
    response = pb.ModelInferResponse(model_name="m", raw_output_contents=[b"\x01\x02"])
    response.outputs.add(name="OUT", shape=[2**40])
    response.parameters["p"].bool_param = False
    table = dict(flatten(members(response), "r"))
    assert table == {
        "r.model_name": "m",
        "r.outputs[0].name": "OUT",
        "r.outputs[0].shape[0]": 2**40,
        "r.parameters.p.bool_param": False,
        "r.raw_output_contents[0]": "0102",
    }
    assert json_format.MessageToDict(response)["modelName"] == "m"


def test_binary_outputs_are_shown_one_by_one() -> None:
    outputs = [
        {"name": name, "parameters": {"binary_data_size": size}} for name, size in (("A", 2), ("B", 1))
    ]
    header = json.dumps({"outputs": outputs}).encode()
    answer = read_answer(200, {"inference-header-content-length": str(len(header))}, header + b"\x01\x02\x03")
    assert (answer["bytes of A"], answer["bytes of B"]) == ("0102", "03")
    assert "bytes left over" not in answer


def test_bytes_after_the_last_output_are_shown() -> None:
    answer = read_answer(200, {"inference-header-content-length": "2"}, b"{}\x09")
    assert answer["bytes left over"] == "09"


def test_events_are_shown_one_by_one() -> None:
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    answer = read_answer(200, headers, b'data: {"a":1}\n\ndata: {"a":2}\n\n')
    assert (answer["event[0].a"], answer["event[1].a"]) == (1, 2)


def test_a_request_says_how_long_its_body_is_unless_its_headers_do() -> None:
    assert b"Content-Length: 4\r\n" in request_bytes("POST", "/", b"body", ())
    assert b"Content-Length" not in request_bytes(
        "POST", "/", b"0\r\n\r\n", (("Transfer-Encoding", "chunked"),)
    )
    assert b"Content-Length" not in request_bytes("GET", "/", b"", ())
