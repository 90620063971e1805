"""Prompts."""

from typing import TypedDict


class TextPrompt(TypedDict):
    """A text."""

    prompt: str


class TokensPrompt(TypedDict):
    """Tokens."""

    prompt_token_ids: list[int]
