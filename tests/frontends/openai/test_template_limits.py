"""A chat template cannot take the server's time or memory, whatever its author or a conversation makes it do."""

import threading
from typing import Any

import openai
import pytest
from openai import OpenAI

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai.chat_template import ChatTemplate
from halimede.frontends.openai.template_limits import (
    ON_LOOP,
    USUAL,
    Budget,
    TemplateLimitError,
    TemplateLimits,
    TooSlowForLoopError,
)

LIMITS = TemplateLimits(60, 100_000, 1_000_000)
STEPS = "the chat template takes more than 100000 steps"
SIZE = "the chat template makes texts of more than 1000000 characters"
WIDTH = "with a width of more than 10000000"
HUGE = {
    "{% for i in range(10**9) %}{% endfor %}": "Range too big",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": STEPS,
    "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}": STEPS,
    "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}": "recursion",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}": "recursion",
    "{% set ns = namespace(n=0) %}{% for i in range(99999) %}{% for j in range(9) %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{% endfor %}": STEPS,
    "{{ 'a' * 10**9 }}": SIZE,
    "{{ ['a'] * 10**9 }}": SIZE,
    "{{ 10**9 * 'a' }}": SIZE,
    "{{ ('a' * 999999) * 999999 }}": SIZE,
    "{{ 9 ** (9 ** 9) }}": "numbers of more than 4096 bits",
    "{% set ns = namespace(n=2) %}{% for i in range(40) %}{% set ns.n = ns.n * ns.n %}{% endfor %}": "4096 bits",
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}": SIZE,
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}": SIZE,
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}":
        SIZE,
    "{{ '%999999999d' % 1 }}": WIDTH,
    "{{ '%*d' % (999999999, 1) }}": WIDTH,
    "{{ '%999999999d'|format(1) }}": WIDTH,
    "{{ '{:999999999d}'.format(1) }}": WIDTH,
    "{{ '{:{}d}'.format(1, 999999999) }}": WIDTH,
    "{{ '{a:{w}d}'.format(a=1, w=999999999) }}": WIDTH,
    "{{ '{a:{w}d}'.format_map(dict(a=1, w=999999999)) }}": WIDTH,
    "{{ '%-*d' % (999999999, 1) }}": WIDTH,
    "{{ '%.*f' % (999999999, 1) }}": WIDTH,
    "{{ '{:{}}'.format('a', '999999999') }}": WIDTH,
    "{{ '{:{a[w]}d}'.format(1, a=dict(w=999999999)) }}": WIDTH,
    "{{ 'a'.center(999999999) }}": "calls 'center' with more than 10000000",
    "{{ 'a'|center(999999999) }}": "calls 'center' with more than 10000000",
    "{{ 'a'.ljust(width=999999999) }}": "calls 'ljust' with more than 10000000",
    "{{ messages|tojson(indent=999999999) }}": "calls 'tojson' with more than",
    "{{ ('a' * 99999).replace('a', 'a' * 99999) }}": SIZE,
    "{{ ('a' * 99999)|replace('a', 'a' * 99999) }}": SIZE,
    "{{ ([('a' * 99999)] * 9999)|join }}": SIZE,
    "{{ ''.join([('a' * 99999)] * 9999) }}": SIZE,
    "{{ ('\\t' * 99999).expandtabs(99999) }}": SIZE,
    "{{ lipsum(n=9999999) }}": "'lipsum' is undefined",
    "{% for i in range(99999) %}{{ 'a' * 99 }}{% endfor %}": SIZE,
}  # fmt: skip


@pytest.mark.parametrize("source", HUGE)
def test_what_takes_too_much_is_refused_with_the_limit(source: str) -> None:
    template = ChatTemplate(source, {})
    with pytest.raises(InvalidArgumentError) as caught:
        template.render([{"role": "user", "content": "a"}], limits=LIMITS)
    assert HUGE[source] in caught.value.message


def test_the_time_of_a_rendering_is_limited() -> None:
    template = ChatTemplate("{% for i in range(99999) %}{% endfor %}", {})
    with pytest.raises(TemplateLimitError, match=r"the chat template takes more than 0 s"):
        template.render([], limits=TemplateLimits(0, 100_000, 1_000_000))
    assert template.render([]) == ""


def test_loops_and_filters_do_what_they_do_in_jinja() -> None:
    source = (
        "{% for m in messages if m.content %}{{ loop.index }}/{{ loop.length }}{{ m.content ~ '!' + 'x' * 2 }}"
        "{% if loop.last %}.{% endif %}{% else %}none{% endfor %}{% set b %}[{{ messages|length }}]{% endset %}{{ b }}"
        "{{ ['a', 'b']|join('-') }}{{ ['a', 'b']|join(d='+') }}{{ '%03d' % 7 }}"
        "{{ messages|map(attribute='role')|join }}{% set c | upper %}c{% endset %}{{ c }}"
        "{% for i in [] %}{% else %}empty{% endfor %}"
    )
    messages = [{"role": "r", "content": "a"}, {"role": "s", "content": ""}, {"role": "t", "content": "b"}]
    told = "1/2a!xx2/2b!xx.[3]a-ba+b007rstCempty"
    assert ChatTemplate(source, {}).render(messages) == told
    assert ChatTemplate(source, {}).render([]) == "none[0]a-ba+b007Cempty"


def test_large_numbers_of_schemas_are_data() -> None:
    source = (
        "{% macro kept(number, other=0) %}{{ number }}{% endmacro %}{% set most = tools[0].maximum %}"
        "{{ kept(most) }}{{ kept(1, other=most) }}{{ kept(number=most) }}{{ tools[0].get('minimum', 99999999) }}"
        "{{ none | default(99999999, true) }}{{ dict(a=most).a }}{{ namespace(a=most).a }}{{ '{}'.format(most) }}"
        "{{ '%s' % most }}{{ '%d' | format(most) }}{{ [1].count(most) }}{{ 'x' | int(most) }}"
        "{{ '{:>{w}}{}'.format('a', '!', w=3) }}"
        "{{ '**%s**' % most }}{{ '**%s**' | format(most | string) }}"
    )
    most = "123456789012"
    tools = [{"maximum": int(most)}]
    assert ChatTemplate(source, {}).render([], tools) == (
        f"{most}1{most}9999999999999999{most * 5}0{most}  a!**{most}****{most}**"
    )


def test_rendering_on_one_thread_has_nothing_to_do_with_another() -> None:
    template = ChatTemplate("{% for i in range(9999) %}{{ i % 2 }}{% endfor %}", {})
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(template.render([]))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(texts) == {"01" * 4999 + "0"}
    assert Budget(USUAL).result("x") == "x"


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_other_requests_go_on_while_a_conversation_takes_its_time(client: OpenAI, path: str) -> None:
    """The template of `slow` has more rounds than the loop waits for, and none that ends is refused."""
    content: Any = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"input": "x"}
    reply: Any = client.post(f"/{path}", body={"model": "slow", **content}, cast_to=object)
    text = str(reply)
    assert "rounds: 50000" in text
    with pytest.raises(openai.BadRequestError, match=r"takes more than (2 s|5000000 steps)") as caught:
        client.post(f"/{path}", body={"model": "endless", **content}, cast_to=object)
    error: Any = caught.value.body
    assert error["param"] == ("messages" if "chat" in path else "input")


def test_the_loop_does_not_wait_for_more_than_a_little() -> None:
    assert ON_LOOP.seconds <= 0.005
    assert not issubclass(TooSlowForLoopError, InvalidArgumentError)
