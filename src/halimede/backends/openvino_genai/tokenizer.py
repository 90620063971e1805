"""The tokenizer of a model of OpenVINO GenAI, which is a model of OpenVINO itself."""

from collections.abc import Sequence
from pathlib import Path

import openvino_genai

from halimede.core.errors import InternalError, InvalidArgumentError


class GenAITokenizer:
    """The tokenizer of a directory: openvino_tokenizer.xml and openvino_detokenizer.xml.

    Attributes:
        end_tokens: what it has as the end of a text.

    Args:
        directory: where its files are.

    Raises:
        InvalidArgumentError: they cannot be loaded.
    """

    def __init__(self, directory: Path) -> None:
        for name in ("openvino_tokenizer.xml", "openvino_detokenizer.xml"):
            if not (directory / name).is_file():
                msg = f"there is no file '{directory / name}': convert the tokenizer with openvino_tokenizers"
                raise InvalidArgumentError(msg)
        try:
            self._tokenizer = openvino_genai.Tokenizer(directory)
        except RuntimeError as error:
            raise InvalidArgumentError(f"cannot load the tokenizer in '{directory}': {error}") from error
        self._begin: str = self._tokenizer.get_bos_token()
        end: int = self._tokenizer.get_eos_token_id()
        self.end_tokens: frozenset[int] = frozenset((end,) if end >= 0 else ())

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt. One that begins with the token of the beginning gets no second one."""
        special = not (self._begin and text.startswith(self._begin))
        try:
            encoded = self._tokenizer.encode(text, add_special_tokens=special)
        except RuntimeError as error:
            raise InternalError(f"the model's tokenizer failed: {error}") from error
        tokens: list[int] = encoded.input_ids.data.reshape(-1).tolist()
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text
