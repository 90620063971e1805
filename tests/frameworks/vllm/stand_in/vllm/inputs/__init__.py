"""Prompts."""

from .data import TextPrompt, TokensPrompt

__all__ = ["TextPrompt", "TokensPrompt"]
