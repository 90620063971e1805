"""Requests whose preparation takes time do not hold up others, and those that cannot be are refused before it."""

from tests.backends.language.asked import Asked
from tests.backends.language.test_instance import CONTEXT, Characters, Model, with_inputs


def test_a_prompt_of_more_characters_than_the_context_holds_never_becomes_tokens() -> None:
    model = Model()
    most = CONTEXT * Characters.max_characters
    long, cut = Asked("a" * (most + 1)), Asked("a" * 400 + "xyz", max_tokens=1)
    model.ask(long, with_inputs(cut, truncate_prompt_tokens=3))
    model.go_on()
    assert str(long.wait().error) == (
        f"the prompt has {most + 1} characters, but the model's context holds {CONTEXT} tokens, which are at most "
        f"{most} characters"
    )
    assert cut.wait().text == "{"  # what follows the last three characters
    assert model.tokenizer.lengths == [most]
    model.go_on()
    model.instance.close()


def test_a_long_prompt_does_not_hold_up_those_that_come_after_it() -> None:
    model = Model(context=2000)
    long, gone, other = Asked("a" * 30_000), Asked("a" * 30_000), Asked("a", max_tokens=1)
    model.ask(long, gone)
    gone.request.cancelled = True
    model.ask(other)
    model.go_on()
    assert other.wait().text == "b"
    assert not long.over.is_set()
    model.tokenizer.long.set()
    assert "the prompt has 30000 tokens, but the model's context holds 2000" in str(long.wait().error)
    assert gone.wait().error is not None
    model.go_on()
    model.instance.close()


def test_a_form_that_is_compiled_does_not_hold_up_those_that_come_after_it() -> None:
    model = Model()
    formed = Asked("a", max_tokens=1, structured_outputs={"regex": "b"})
    model.engine.known = False
    model.ask(formed)
    other = Asked("a", max_tokens=2)
    model.ask(other)
    model.go_on()
    assert other.wait().text == "bc"
    assert not formed.over.is_set()
    model.engine.compiled.set()
    assert formed.wait().text == "b"
    model.go_on()
    model.instance.close()


def test_a_form_that_is_too_large_is_not_compiled() -> None:
    model = Model()
    model.engine.known = False  # it would wait
    asked = Asked("a", structured_outputs={"regex": "((a{500}){500}){500}"})
    model.ask(asked)
    assert "'structured_outputs.regex' cannot be used: with its repetitions" in str(asked.wait().error)
    model.go_on()
    model.instance.close()
