"""Prompts are those of `apply_chat_template`, byte for byte, for templates in all styles and any conversation."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

import transformers

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai.chat_template import ChatTemplate, TemplateOptions
from halimede.frontends.openai.text_files import read_text_files
from tests.frameworks.transformers.template_styles import STYLES
from tests.frameworks.transformers.tiny_models import tokenizer

SPECIAL = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "sep_token": "<sep>",
    "cls_token": "<cls>", "mask_token": "<mask>",
}  # fmt: skip
LIKELY = (
    "",
    " ",
    "hello",
    "  padded \n",
    "é€😀",
    '"quoted" \\ <b>&amp;</b>',
    "a\nb",
    "<think>hm</think>\n\nyes",
)
TEXT = st.sampled_from(LIKELY) | st.text(max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from((0.5, 1e-7)) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2)
)
PARTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT) | st.just({"type": "image"}), max_size=3
)
CALLS = st.lists(
    st.builds(
        lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
        TEXT,
        st.dictionaries(TEXT, VALUES, max_size=2) | TEXT,
    ),
    max_size=2,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "system", "tool", "developer"))},
    optional={
        "content": st.none() | TEXT | PARTS,
        "tool_calls": st.none() | CALLS,
        "name": TEXT,
        "reasoning": st.none() | TEXT,
        "reasoning_content": TEXT,
        "thinking": TEXT,
    },
)
TALKS = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}), min_size=1, max_size=3)
CONVERSATIONS = TALKS | st.lists(MESSAGES, min_size=1, max_size=4)
TOOLS = st.none() | st.lists(
    st.builds(
        lambda name, rest: {"type": "function", "function": {"name": name, **rest}},
        TEXT,
        st.dictionaries(TEXT, VALUES, max_size=2),
    ),
    min_size=1,
    max_size=2,
)
OPTIONS = st.builds(
    TemplateOptions,
    st.booleans(),
    st.just(False),
    st.none() | st.lists(st.fixed_dictionaries({"title": TEXT, "text": TEXT}), max_size=2),
    st.dictionaries(st.sampled_from(("enable_thinking", "reasoning_effort", "depth", "bos_token")), VALUES, max_size=2),
) | st.just(TemplateOptions(add_generation_prompt=False, continue_final_message=True))  # fmt: skip


@cache
def with_tokens() -> Any:
    """A tokenizer with all of these tokens."""
    words = copy.deepcopy(tokenizer())
    for name, token in SPECIAL.items():
        setattr(words, name, token)
    return words


def wanted(source: str, messages: Any, tools: Any, options: TemplateOptions) -> str | None:
    """The prompt of transformers; None if it has none."""
    try:
        prompt: str = with_tokens().apply_chat_template(
            messages,
            tools=tools,
            documents=options.documents,
            chat_template=source,
            add_generation_prompt=options.add_generation_prompt,
            continue_final_message=options.continue_final_message,
            tokenize=False,
            **options.variables,
        )
    except Exception:  # templates are programs
        return None
    return None if "CONTINUE_FINAL_MESSAGE_TAG" in prompt else prompt  # of a message that comes twice


def told(source: str, messages: Any, tools: Any, options: TemplateOptions) -> str | None:
    """The prompt of the server; None if it has none."""
    try:
        return ChatTemplate(source, SPECIAL).render(messages, tools, options)
    except InvalidArgumentError:
        return None


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(CONVERSATIONS, TOOLS, OPTIONS)
def test_prompts_are_those_of_transformers(
    style: str, messages: Any, tools: Any, options: TemplateOptions
) -> None:
    source = STYLES[style]
    before = json.dumps(messages)
    expected = wanted(source, messages, tools, options)
    assert told(source, messages, tools, options) == expected
    assert json.dumps(messages) == before


def test_most_styles_give_a_prompt() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    none = [
        style for style, source in STYLES.items() if told(source, messages, None, TemplateOptions()) is None
    ]
    assert none == [
        "what the sandbox forbids", "what is not there", "filters that are not there", "no end",
    ]  # fmt: skip


USUAL = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ bos_token }}usual"}
NAMES = "{{ bos_token }}|{{ sep_token }}|{{ cls_token }}|{{ mask_token }}|{{ image_token }}|{{ tool_token }}"
LISTED = [{"name": "default", "template": "usual"}, {"name": "tool_use", "template": "tools"}]
FILES: list[dict[str, Any]] = [
    {"tokenizer_config.json": {**USUAL, "bos_token": "<s>"}},
    {"tokenizer_config.json": {**USUAL, "bos_token": {"content": "<s>", "__type": "AddedToken"}}},
    {"tokenizer_config.json": {**USUAL, "chat_template": NAMES, "bos_token": "<s>", "add_bos_token": True}},
    {"tokenizer_config.json": {**USUAL, "chat_template": NAMES, "sep_token": "S", "cls_token": "C", "mask_token": "M",
                               "image_token": "I", "bos_token": None}},
    {"tokenizer_config.json": {**USUAL, "chat_template": NAMES, "extra_special_tokens": {"tool_token": "T"}}},
    {"tokenizer_config.json": {**USUAL, "chat_template": NAMES, "bos_token": "B", "added_tokens_decoder": {}},
     "special_tokens_map.json": {"bos_token": "X"}},
    {"tokenizer_config.json": {**USUAL, "chat_template": NAMES, "bos_token": "B"},
     "special_tokens_map.json": {"bos_token": "X", "mask_token": {"content": "M", "lstrip": False}}},
    {"tokenizer_config.json": {**USUAL, "chat_template": LISTED}},
    {"tokenizer_config.json": {**USUAL, "chat_template": LISTED[1:]}},
    {"tokenizer_config.json": USUAL, "chat_template.jinja": "file"},
    {"tokenizer_config.json": USUAL, "chat_template.jinja": "file",
     "additional_chat_templates/tool_use.jinja": "file with tools"},
    {"tokenizer_config.json": {**USUAL, "chat_template": LISTED},
     "additional_chat_templates/tool_use.jinja": "file with tools"},
]  # fmt: skip


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "time"}}]])
def test_files_give_the_templates_and_tokens_that_transformers_finds(
    tmp_path: Path, files: dict[str, Any], tools: list[Any] | None
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    for name, content in files.items():
        path = tmp_path / "m" / "1" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    tokenizer().backend_tokenizer.save(str(tmp_path / "m" / "1" / "tokenizer.json"))
    words: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "m" / "1")
    messages = [{"role": "user", "content": "hello"}]
    try:
        expected = words.apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=True
        )
    except ValueError:  # none is the default
        expected = None
    found = read_text_files(tmp_path / "m", 1, "")
    template = (tools and found.tool_template) or found.template
    assert (template.render(messages, tools) if template else None) == expected
