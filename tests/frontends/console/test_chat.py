"""A conversation in the console, in a real Chromium with a real server that speaks OpenAI's API."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.frontends.openai.models import write_repository
from tests.support.browser import SCHEMES, found_by_axe, keep
from tests.support.server import ServerProcess, start_server


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("chat")
    write_repository(directory)
    with start_server(directory, "--allow-openai=true", "--allow-grpc=false") as running:
        yield running


def open_chat(page: Page, server: ServerProcess, model: str = "writer") -> None:
    page.goto(f"http://{server.http}/console#/model/{model}/1/try")
    expect(page.get_by_role("button", name="Conversation", exact=True)).to_be_visible()


def send(page: Page, text: str) -> None:
    """Send a message by the keyboard."""
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def turns(page: Page) -> list[str]:
    """What has been said, in order."""
    return page.get_by_role("log").locator(".words").all_inner_texts()


def test_a_conversation_goes_on(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    send(page, "good day")
    outcome = page.get_by_role("status").filter(has_text="tokens")
    expect(outcome).to_contain_text("4 tokens")
    expect(outcome).to_contain_text("tokens/s, the first after")
    assert turns(page) == ["good day", "user: good day assistant: "]
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    expect(page.get_by_role("region", name="Code of the call").first).to_contain_text("good day")
    # the model repeats its prompt, which has all that was said before
    send(page, "and you")
    expect(page.get_by_role("log").locator(".words").last).to_contain_text("user: and you assistant:")
    assert "user: good day assistant: user: good day assistant:" in turns(page)[-1].replace("\n", " ")
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_text("The conversation appears here.")).to_be_visible()
    assert turns(page) == []
    expect(page.get_by_label("Message", exact=True)).to_be_focused()


def test_settings_reach_the_model(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_label("Most tokens").fill("50")
    page.get_by_label("System prompt").fill("be brief")
    send(page, "good day")
    expect(page.get_by_role("log").locator(".words").last).to_contain_text("system: be brief user: good day")
    page.get_by_role("button", name="New conversation").click()
    send(page, "tell me your options")
    last = page.get_by_role("log").locator(".words").last
    expect(last).to_contain_text("}")
    assert json.loads(last.inner_text()) == {"max_tokens": 50, "temperature": 0.2}


def test_a_text_is_stopped(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    send(page, "endless please")
    expect(page.get_by_role("log")).to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("log").locator(".words").last).to_contain_text("word word")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status").filter(has_text="Stopped after")).to_be_visible()
    expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
    speaker.wait_for("cancelled: assistant:")
    assert turns(page)[-1].startswith("word word")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_what_fails_is_told_and_the_message_stays(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    send(page, "fail now")
    expect(page.get_by_text("no room for this prompt")).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_value("fail now")
    assert turns(page) == []
    open_chat(page, speaker, "plain")
    send(page, "hello")
    expect(page.get_by_text("cannot chat")).to_be_visible()


def test_the_same_call_as_code(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    page.get_by_label("Message", exact=True).fill('it\'s "fine"')
    code = page.get_by_role("region", name="Code of the call").first
    expect(code).to_contain_text("it'\\''s")
    shown = code.inner_text()
    assert shown.startswith(f"curl -sN http://{speaker.http}/v1/chat/completions -d '")
    document = json.loads(shown.partition("-d '")[2][:-1].replace("'\\''", "'"))
    assert document["messages"] == [{"role": "user", "content": 'it\'s "fine"'}]
    assert (document["stream"], document["temperature"], document["max_tokens"]) == (True, 0.7, 256)
    page.get_by_role("button", name="openai").click()
    expect(code).to_contain_text("client.chat.completions.create(")
    compile(code.inner_text(), "shown", "exec")


def test_tensors_are_a_click_away(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    page.get_by_role("button", name="Tensors").click()
    expect(page.get_by_role("log")).to_be_hidden()
    expect(page.locator("legend").filter(has_text="text_input")).to_be_visible()
    page.goto(f"http://{speaker.http}/console#/model/squash/1/try")  # which embeds, and does not chat
    expect(page.locator("legend").filter(has_text="TEXT")).to_be_visible()
    expect(page.get_by_role("button", name="Conversation", exact=True)).to_have_count(0)


def test_axe_finds_nothing(page: Page, speaker: ServerProcess) -> None:
    open_chat(page, speaker)
    send(page, "good day")
    expect(page.get_by_role("status").filter(has_text="tokens")).to_be_visible()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        keep(page, f"chat-{scheme}")
        assert found_by_axe(page) == [], scheme
