"""Requests to a language model share its engine: admission, turns, cancellation, failures, slow readers."""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from halimede.backends.language import instance, tensors
from halimede.backends.language.engine import Engine
from halimede.backends.language.generation import Generation
from halimede.backends.language.instance import LanguageInstance
from halimede.backends.language.logprobs import TokenLogprob
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure
from halimede.backends.text_counts import TextCounts
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.datatypes import BOOL, BYTES
from halimede.core.errors import CancelledError, InternalError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor, encode_bytes
from tests.backends.language.asked import Asked, batch_of

CONTEXT = 20
SPECIAL = ord("#")


class Characters:
    """A tokenizer whose tokens are characters. Long texts wait until the test allows them."""

    max_characters = 16

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.long = threading.Event()

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        self.lengths.append(len(text))
        if len(text) > 20_000:
            assert self.long.wait(60)
        if "\0" in text:
            raise InternalError("the model's tokenizer failed: no such character")
        return [SPECIAL] * special + list(map(ord, text)) if text[:1] == "^" else list(map(ord, text))

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        return "".join(chr(token) for token in tokens if special or token != SPECIAL)

    def piece(self, token: int) -> bytes:
        return chr(token).encode()


class Spelling(Engine):
    """Goes on with the alphabet, one letter each step that the test allows; `!` fails, and `.` ends the text."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)
        self.under_way: list[Generation] = []
        self.most = 0
        self.known = True
        self.compiled = threading.Event()

    def knows(self, structure: Structure) -> bool:
        return self.known

    def check(self, sampling: Sampling) -> None:
        if not self.known:
            assert self.compiled.wait(60)

    def add(self, generation: Generation) -> None:
        if generation.asked.prompt == "?":
            raise InvalidArgumentError("there is no answer to this")
        self.under_way.append(generation)

    def step(self) -> None:
        self.steps.acquire()
        self.most = max(self.most, len(self.under_way))
        for generation in self.under_way:
            last = (generation.prompt + generation.tokens)[-1]
            if last == ord("!"):
                raise RuntimeError("out of letters")
            told = generation.asked.sampling.logprobs is not None
            logprob = TokenLogprob(-0.5, 1, ((last + 1, -0.5),)) if told else None
            generation.take(last + 1, ends=last == ord("."), logprob=logprob)

    def remove(self, generations: Collection[Generation]) -> None:
        self.under_way = [each for each in self.under_way if each not in generations]

    def clear(self) -> None:
        self.under_way = []


class Model:
    """An instance, and its engine."""

    def __init__(self, context: int = CONTEXT) -> None:
        config = ModelConfig(name="m", backend="transformers")
        tensors.complete(config)
        self.signature = Signature.from_config(config)
        self.engine = Spelling()
        self.tokenizer = Characters()
        self.instance = LanguageInstance(lambda: self.engine, self.tokenizer, Sampling(), context, 2)

    def ask(self, *asked: Asked) -> None:
        """Have the instance begin these."""
        self.instance.execute(batch_of(self.signature, *asked))

    def break_engine(self) -> None:
        """The engine can write no more texts."""
        self.engine.broken = "the engine is broken"
        self.instance.look()

    def go_on(self, steps: int = 100) -> None:
        """Allow steps."""
        self.engine.steps.release(steps)


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.go_on()
    made.instance.close()


def test_a_text_comes_letter_by_letter(model: Model) -> None:
    asked = Asked("abc", max_tokens=4)
    model.ask(asked)
    model.go_on()
    asked.wait()
    assert asked.texts == ["d", "e", "f", "g"]
    assert asked.outputs[tensors.FINISH_REASON] == b"length"
    assert asked.outputs[tensors.INPUT_TOKENS] == 3
    assert asked.count == 4


def test_without_stream_there_is_one_response_that_begins_with_the_prompt(model: Model) -> None:
    asked = Asked("+", stream=False)
    model.ask(asked)
    model.go_on()
    asked.wait()
    assert asked.texts == ["+,-."]
    assert asked.outputs[tensors.FINISH_REASON] == b"stop"
    assert asked.count == 4  # with the one that ends it


def test_a_text_ends_where_the_context_does(model: Model) -> None:
    asked = Asked("a" * (CONTEXT - 2))
    model.ask(asked)
    model.go_on()
    assert asked.wait().texts == ["b", "c"]
    assert asked.outputs[tensors.FINISH_REASON] == b"length"


def test_a_stop_word_is_not_shown_nor_its_beginning(model: Model) -> None:
    asked = Asked("a", stop=["ef", "dx"])
    model.ask(asked)
    model.go_on()
    assert "".join(asked.wait().texts) == "bcd"
    assert asked.outputs[tensors.FINISH_REASON] == b"stop"
    assert asked.outputs[tensors.STOP_REASON] == b"ef"


def test_a_text_may_end_after_its_stop_word(model: Model) -> None:
    asked = Asked("a", stop=["ef"], include_stop_str_in_output=True)
    model.ask(asked)
    model.go_on()
    assert "".join(asked.wait().texts) == "bcdef"


def test_special_tokens_are_part_of_the_text_if_that_is_asked_for(model: Model) -> None:
    hidden, shown = Asked('"', max_tokens=2), Asked('"', max_tokens=2, skip_special_tokens=False)
    model.ask(hidden, shown)
    model.go_on()
    assert (hidden.wait().text, shown.wait().text) == ("$", "#$")


@pytest.mark.parametrize(("special", "count"), [(None, 3), (True, 3), (False, 2)])
def test_a_prompt_gets_special_tokens_unless_it_has_them(
    model: Model, special: bool | None, count: int
) -> None:
    asked = Asked("^a", max_tokens=1)
    model.ask(asked if special is None else with_inputs(asked, add_special_tokens=special))
    model.go_on()
    assert asked.wait().outputs[tensors.INPUT_TOKENS] == count


@pytest.mark.parametrize(
    ("tokens", "side", "text"),
    [(2, None, "f"), (2, "left", "f"), (2, "right", "c"), (9, "right", "f"), (-1, "left", "f"), (None, "right", "f")],
)  # fmt: skip
def test_a_prompt_may_be_cut(model: Model, tokens: int | None, side: str | None, text: str) -> None:
    asked = with_inputs(Asked("abcde", max_tokens=1), truncate_prompt_tokens=tokens, truncation_side=side)
    model.ask(asked)
    model.go_on()
    assert asked.wait().text == text
    assert asked.outputs[tensors.INPUT_TOKENS] == (tokens if tokens == 2 else 5)


def test_a_prompt_may_be_cut_to_what_the_context_holds(model: Model) -> None:
    asked = with_inputs(Asked("a" * 99, max_tokens=3), truncate_prompt_tokens=-1)
    model.ask(asked)
    model.go_on()
    assert asked.wait().text == "bcd"
    assert asked.outputs[tensors.INPUT_TOKENS] == CONTEXT - 3


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (
            {"truncate_prompt_tokens": 0},
            "'truncate_prompt_tokens' must be a whole number above 0, or -1, got 0",
        ),
        ({"truncate_prompt_tokens": True}, "'truncate_prompt_tokens' must be a whole number above 0"),
        ({"truncation_side": "up"}, "'truncation_side' must be left or right, got 'up'"),
    ],
)
def test_impossible_cuts_are_refused(model: Model, inputs: dict[str, object], told: str) -> None:
    asked = with_inputs(Asked("a"), **inputs)
    model.ask(asked)
    assert told in str(asked.wait().error)


def test_a_prompt_may_be_tokens(model: Model) -> None:
    asked = with_inputs(Asked("", stream=False, max_tokens=2), prompt_token_ids=[97, 98])
    model.ask(asked)
    model.go_on()
    assert asked.wait().text == "abcd"
    assert asked.outputs[tensors.INPUT_TOKENS] == 2
    for wrong in ("ab", [-1], [True], [1.5]):
        asked = with_inputs(Asked(""), prompt_token_ids=wrong)
        model.ask(asked)
        assert "'prompt_token_ids' must be a list of token ids" in str(asked.wait().error)


def test_log_probabilities_may_name_tokens_by_their_ids(model: Model) -> None:
    asked = with_inputs(
        Asked("a", stream=False, max_tokens=2), logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True
    )
    model.ask(asked)
    model.go_on()
    entries = json.loads(asked.wait().outputs[tensors.LOGPROBS])["content"]
    assert [entry["token"] for entry in entries] == ["token_id:98", "token_id:99"]
    assert entries[0]["top_logprobs"][0]["token"] == "token_id:98"


def test_two_share_each_step_and_the_third_waits_in_the_queue(model: Model) -> None:
    first, second, third = Asked("a", max_tokens=9), Asked("A", max_tokens=3), Asked("0", max_tokens=2)
    model.ask(first, second)
    waiting = threading.Thread(target=model.ask, args=(third,))
    waiting.start()
    model.go_on(2)
    assert waiting.is_alive()
    model.go_on()
    waiting.join(60)
    assert "".join(third.wait().texts) == "12"
    assert "".join(first.wait().texts) == "bcdefghij"
    assert "".join(second.wait().texts) == "BCD"
    assert model.engine.most == 2


def test_a_client_that_leaves_makes_room_at_the_next_step(model: Model) -> None:
    first, second, third = Asked("a"), Asked("A", max_tokens=9), Asked("0", max_tokens=1)
    model.ask(first, second)
    first.request.cancelled = True
    model.go_on(2)
    assert isinstance(first.wait().error, CancelledError)
    model.ask(third)
    model.go_on()
    assert third.wait().texts == ["1"]
    assert "".join(second.wait().texts) == "BCDEFGHIJ"


def test_a_client_that_leaves_while_it_waits_for_room_gets_none(model: Model) -> None:
    third = Asked("0")
    model.ask(Asked("a"), Asked("A"))
    third.request.cancelled = True
    model.ask(third)
    assert isinstance(third.wait().error, CancelledError)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("", "'text_input' is empty"),
        ("a" * CONTEXT, "the prompt has 20 tokens, but the model's context holds 20"),
        ("\0", "the model's tokenizer failed: no such character"),
        ("?", "there is no answer to this"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused_and_others_go_on(model: Model, prompt: str, told: str) -> None:
    refused, other = Asked(prompt), Asked("a", max_tokens=1)
    model.ask(refused, other)
    model.go_on()
    assert told in str(refused.wait().error)
    assert other.wait().texts == ["b"]


def test_a_step_that_fails_fails_those_under_way_and_no_later_ones(model: Model) -> None:
    asked = [Asked("!"), Asked("a")]
    model.ask(*asked)
    model.go_on()
    for each in asked:
        error = each.wait().error
        assert isinstance(error, InternalError)
        assert error.message == "RuntimeError: out of letters"
    later = Asked("a", max_tokens=1)
    model.ask(later)
    assert later.wait().texts == ["b"]


def test_a_client_that_reads_slowly_gets_more_at_a_time_and_delays_nobody(model: Model) -> None:
    slow, other = Asked("a", max_tokens=5), Asked("A", max_tokens=6)
    slow.request.congested = True
    model.ask(slow, other)
    model.go_on(3)
    model.go_on()
    assert "".join(other.wait().texts) == "BCDEFG"
    assert slow.wait().texts == ["bcdef"]
    assert slow.outputs[tensors.OUTPUT_TOKENS] == 5


def test_an_engine_that_cannot_be_made_fails_the_instance() -> None:
    def refuse() -> Engine:
        raise InvalidArgumentError("no weights")

    with pytest.raises(InvalidArgumentError, match="no weights"):
        LanguageInstance(refuse, Characters(), Sampling(), CONTEXT, 2)


def test_streams_leave_the_prompt_out(model: Model) -> None:
    asked = Asked("a")
    asked.request.inputs[tensors.EXCLUDE_INPUT] = Tensor.from_array(BOOL, np.array([False]))
    model.ask(asked)
    assert str(asked.wait().error) == "exclude_input_in_output cannot be false for a request with stream"


def with_inputs(asked: Asked, **inputs: object) -> Asked:
    """The request with more inputs: switches as such, and the rest as JSON."""
    for name, value in inputs.items():
        if name.startswith(("return_", "add_")):
            asked.request.inputs[name] = Tensor.from_array(BOOL, np.array([value]))
        else:
            asked.request.inputs[name] = Tensor(BYTES, (1,), encode_bytes([json.dumps(value)]))
    return asked


def test_log_probabilities_come_as_the_vllm_backend_of_triton_tells_them(model: Model) -> None:
    asked = with_inputs(
        Asked("a", stream=False, max_tokens=2, logprobs=1),
        return_logprobs=True, return_cumulative_logprob=True,
    )  # fmt: skip
    model.ask(asked)
    model.go_on()
    assert json.loads(asked.wait().outputs[tensors.LOGPROBS]) == [
        {"98": {"logprob": -0.5, "rank": 1, "decoded_token": "b"}},
        {"99": {"logprob": -0.5, "rank": 1, "decoded_token": "c"}},
    ]
    assert asked.outputs[tensors.CUMULATIVE_LOGPROB] == -1.0


def test_the_output_of_log_probabilities_is_null_if_the_sampling_asks_for_none(model: Model) -> None:
    asked = with_inputs(Asked("a", stream=False, max_tokens=2), return_logprobs=True)
    model.ask(asked)
    model.go_on()
    assert asked.wait().outputs[tensors.LOGPROBS] == b"null"


def test_each_response_of_a_stream_has_the_log_probabilities_of_its_tokens(model: Model) -> None:
    asked = with_inputs(Asked(","), logprobs=True, top_logprobs=1)
    told: list[str] = []
    take = asked.send

    def send(response: InferResponse | None, final: bool) -> None:
        assert response is not None
        entries = json.loads(response.outputs[tensors.LOGPROBS].array.item())["content"]
        told.append("".join(entry["token"] for entry in entries))
        take(response, final)

    asked.send = send  # type: ignore[method-assign]
    model.ask(asked)
    model.go_on()
    assert told == asked.wait().texts == ["-", ".", ""]  # the token that ends the text is no part of it


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (
            {"logprobs": True, "top_logprobs": 21},
            "'top_logprobs' must be a whole number from 0 to 20, got 21",
        ),
        ({"top_logprobs": 2}, "'top_logprobs' needs 'logprobs': true beside it"),
        ({"logprobs": 3, "top_logprobs": 2}, "'top_logprobs' needs 'logprobs': true beside it, got 3"),
        ({"logprobs": "yes"}, "'logprobs' must be a whole number from 0 to 20, got 'yes'"),
    ],
)
def test_impossible_log_probabilities_are_refused(model: Model, inputs: dict[str, object], told: str) -> None:
    asked = with_inputs(Asked("a"), **inputs)
    model.ask(asked)
    assert str(asked.wait().error) == told


def test_a_text_goes_on_beside_requests_that_come_without_end(model: Model) -> None:
    text, over = Asked("a", max_tokens=8), threading.Event()

    def send_refused() -> None:
        while not over.is_set():
            model.ask(Asked("\0"))

    model.ask(text)
    sending = threading.Thread(target=send_refused)
    sending.start()
    model.go_on()
    try:
        assert text.wait().text == "bcdefghi"
    finally:
        over.set()
        sending.join()


def test_what_comes_while_a_step_lasts_is_in_the_next_one(model: Model) -> None:
    first, second = Asked("a", max_tokens=9), Asked("A", max_tokens=9)
    model.ask(first)
    model.go_on(1)
    model.ask(second)
    model.go_on()
    first.wait()
    second.wait()
    assert model.engine.most == 2


def test_what_a_step_writes_is_sent_together(model: Model) -> None:
    sent: list[int] = []
    first, second = Asked("a", max_tokens=2), Asked("A", max_tokens=2)

    @contextmanager
    def together() -> Iterator[None]:
        before = len(first.texts) + len(second.texts)
        yield
        sent.append(len(first.texts) + len(second.texts) - before)

    batch = batch_of(model.signature, first, second)
    batch.together = together
    model.instance.execute(batch)
    model.go_on()
    first.wait()
    second.wait()
    model.instance.close()  # only now the last block is over
    assert sum(sent) == 4
    assert 2 in sent


def test_a_broken_engine_fails_its_texts_and_ends_the_process(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(instance, "end_process", ended.set)
    asked = Asked("a", max_tokens=9)
    model.ask(asked)
    model.break_engine()
    model.go_on(1)
    assert isinstance(asked.wait().error, UnavailableError)
    assert "the engine is broken" in str(asked.error)
    assert ended.wait(60)


@pytest.mark.parametrize("place", ["encode", "check", "add", "send"])
def test_an_exception_of_any_kind_fails_its_request_only(
    model: Model, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("nobody expects this")

    if place == "send":
        monkeypatch.setattr(Generation, "_response", fail)
    else:
        monkeypatch.setattr(Characters if place == "encode" else Spelling, place, fail)
    asked = Asked("a", structured_outputs={"regex": "a"} if place == "check" else None)
    model.ask(asked)
    model.go_on(1)
    assert isinstance(asked.wait().error, InternalError)
    assert "KeyError: 'nobody expects this'" in str(asked.error)
    monkeypatch.undo()
    after = Asked("a", max_tokens=2)
    model.ask(after)
    model.go_on()
    assert after.wait().text == "bc"


@pytest.mark.parametrize("place", ["remove", "clear"])
def test_an_engine_that_cannot_forget_texts_fails_them_and_ends_the_process(
    model: Model, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("nobody expects this")

    ended = threading.Event()
    monkeypatch.setattr(instance, "end_process", ended.set)
    monkeypatch.setattr(model.engine, place, fail)
    asked = Asked("!" if place == "clear" else "a", max_tokens=1)
    model.ask(asked)
    model.go_on(1)
    asked.wait()
    assert ended.wait(60)


def test_an_engine_that_breaks_while_nothing_is_written_ends_the_process(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(instance, "end_process", ended.set)
    model.break_engine()
    assert ended.wait(60)


def test_reports_have_each_token_once_and_first_tokens_before_last_responses(model: Model) -> None:
    events: list[TextCounts | InferRequest] = []
    model.instance.on_counts = events.append
    long, short = Asked("a", max_tokens=9), Asked("ABC", max_tokens=2)
    for each in (long, short):
        each.send = told(events, each)  # type: ignore[assignment, method-assign]
    model.ask(long, short)
    model.go_on()
    long.wait()
    short.wait()
    model.ask(after := Asked("a", max_tokens=1))
    after.wait()  # by which what came before it is reported
    reports = reports_of(events)
    first = [request for report in reports for request, _ in report.first_tokens]
    assert first == [long.request, short.request, after.request]
    before_the_end = reports_of(events[: events.index(short.request)])
    assert short.request in [request for report in before_the_end for request, _ in report.first_tokens]
    assert sum(report.tokens for report in reports) == 9 + 2 + 1
    assert sum(report.prompt_tokens for report in reports) == 1 + 3 + 1
    assert sum(sum(report.gaps) for report in reports) == 8 + 1
    assert all(report.gaps_ns >= 0 for report in reports)
    assert [report.running for report in reports][-1] == 0
    assert all(report.cache_usage is None for report in reports)


def reports_of(events: list[TextCounts | InferRequest]) -> list[TextCounts]:
    return [event for event in events if isinstance(event, TextCounts)]


def told(
    events: list[TextCounts | InferRequest], asked: Asked
) -> Callable[[InferResponse | None, bool], None]:
    """Sends its responses, and notes its end."""
    send = asked.send

    def sending(response: InferResponse | None, final: bool) -> None:
        if final:
            events.append(asked.request)
        send(response, final)

    return sending


def test_a_report_follows_when_the_last_text_is_cancelled(model: Model) -> None:
    reports: list[TextCounts] = []
    begun, over = threading.Event(), threading.Event()

    def keep(report: TextCounts) -> None:
        reports.append(report)
        (begun if report.running else over).set()

    model.instance.on_counts = keep
    asked = Asked("a")
    model.ask(asked)
    model.go_on(1)
    assert begun.wait(60)
    asked.request.cancelled = True
    model.go_on()
    assert isinstance(asked.wait().error, CancelledError)
    assert over.wait(60)
    assert [report.running for report in reports][-1] == 0
