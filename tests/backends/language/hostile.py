"""Requests for completions with numbers that no client means well with, for the servers of all language backends."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.support.server import ServerProcess

DIGITS = "9" * 5000
NUMBERS = ("1e-320", "1e308", "-1e308", "1e400", "0", "9223372036854775807", "-9223372036854775808",
           "18446744073709551616", DIGITS, "NaN", "-Infinity", f'"{DIGITS}"', "true", "{}")  # fmt: skip
FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "max_tokens", "min_tokens", "n", "best_of", "logprobs", "prompt_logprobs", "truncate_prompt_tokens", "stop",
    "stop_token_ids", "allowed_token_ids", "bad_words", "logit_bias", "ignore_eos", "skip_special_tokens", "echo",
)  # fmt: skip
LISTS = (f"[{DIGITS}]", "[1e-320]", "[-1]", "[9223372036854775808]", '[""]', f'["{DIGITS}"]', "[[]]")
BIASES = (f'{{"{DIGITS}": 1}}', '{"5": 1e-320}', '{"5": 1e308}', '{"5": NaN}', f'{{"5": {DIGITS}}}', '{"-1": 1}',
          '{"1e3": 1}', '{"٥": 1}', '{"": 1}', '{"4294967296": 1}')  # fmt: skip
FORMS = (
    '{"regex": "(((a{500}){500}){500}){500}"}', '{"regex": "(a|aa)+$"}', '{"regex": "[a-z]{1,100000}"}',
    '{"regex": "(?=a)b"}', '{"choice": []}', '{"grammar": "root ::= root"}', '{"grammar": "root ::= \\"a\\" root"}',
    '{"json": {"type": "string", "minLength": 1e308}}', f'{{"json": {{"maximum": {DIGITS}}}}}',
    '{"json": {"$ref": "#"}}', '{"json": {"type": "array", "minItems": 1000000}}',
    '{"json": {"enum": []}}', '{"json": {"type": "integer", "minimum": 1e-320, "multipleOf": 1e-320}}',
)  # fmt: skip


def hostile_bodies() -> Iterator[bytes]:
    """JSON of requests, each with one field of this kind."""
    for field in FIELDS:
        for value in (*NUMBERS, *LISTS, *(BIASES if field == "logit_bias" else ())):
            yield body(field, value)
    for value in FORMS:
        yield body("structured_outputs", value)
        yield body("structured_outputs", json.dumps(value))


def body(field: str, value: str) -> bytes:
    """A request for a text of two tokens, in which this field has a value that is JSON."""
    members = {"model": '"m"', "prompt": '"The moon"', "max_tokens": "2", field: value}
    return ("{" + ", ".join(f'"{name}": {each}' for name, each in members.items()) + "}").encode()


def failures(server: ServerProcess, model: str) -> list[tuple[int, str, str]]:
    """Status, request and answer of each of the requests that are answered as if the server had failed."""
    bodies = [sent.replace(b'"m"', json.dumps(model).encode(), 1) for sent in hostile_bodies()]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda sent: post(server, sent), bodies))
    return [
        (status, sent[-200:].decode(), answer)
        for sent, (status, answer) in zip(bodies, answers, strict=True)
        if status not in (200, 400)
    ]


def post(server: ServerProcess, sent: bytes, path: str = "/v1/completions") -> tuple[int, str]:
    """Status and body of the answer."""
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", sent, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
