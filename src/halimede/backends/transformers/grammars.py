"""Forms of texts as llguidance compiles them, and what follows a text's progress through one."""

import re
from collections import OrderedDict
from threading import Lock
from time import monotonic
from typing import Any, Final

import orjson
import torch
from torch import Tensor

from halimede.backends.language.form_limits import MAX_COMPILE_S
from halimede.backends.language.schemas import changed
from halimede.backends.language.structure import Structure, StructureKind
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnsupportedError

_KEPT: Final = 256
"""So many compiled forms are kept, with those that were refused."""

_COMPACT: Final[Any] = {"whitespace_flexible": False}
"""JSON has no white space, so that a model cannot go on with it for ever."""


_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
"""Formats of strings that llguidance knows."""

_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_ASCII: Final = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}


class Matcher:
    """Says which tokens may come next in one text.

    Args:
        compiled: an `llguidance.LLMatcher` that is at the beginning.
        structure: the form, for errors.
    """

    def __init__(self, compiled: Any, structure: Structure) -> None:
        self._compiled = compiled
        self._structure = structure

    def mask(self, scores: Tensor) -> Tensor:
        """The scores, of shape [vocabulary], with -inf for tokens that may not come.

        Raises:
            InvalidArgumentError: the form is too complex to go on.
        """
        bits = torch.frombuffer(bytearray(self._compiled.compute_bitmask()), dtype=torch.uint8)
        if self._compiled.is_error():
            raise self._structure.refused(_first_line(self._compiled.get_error()))
        allowed = (bits[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).bool().flatten()[: len(scores)]
        masked = torch.full_like(scores, -torch.inf)
        masked[: len(allowed)] = scores[: len(allowed)].where(allowed, -torch.inf)
        return masked

    def take(self, token: int) -> bool:
        """Go on by a token; whether the text is complete with it.

        Raises:
            InvalidArgumentError: the form is too complex to go on.
        """
        self._compiled.consume_token(token)
        if self._compiled.is_error():
            raise self._structure.refused(_first_line(self._compiled.get_error()))
        return bool(self._compiled.is_stopped())


class Grammars:
    """Compiles forms, and keeps those that were used last. Used by several threads.

    Args:
        tokenizer: of `transformers`.
        ends: the tokens that end a text.
        most_s: forms that take more seconds to compile are refused.
    """

    def __init__(self, tokenizer: Any, ends: frozenset[int], most_s: float = MAX_COMPILE_S) -> None:
        self._tokenizer = tokenizer
        self._ends = sorted(ends)
        self._most_s = most_s
        self._lock = Lock()
        self._compiling = Lock()
        self._vocabulary: Any = None
        self._compiled: OrderedDict[Structure, Any] = OrderedDict()

    def knows(self, structure: Structure) -> bool:
        """Whether a form is compiled, or known to be impossible."""
        with self._lock:
            return structure in self._compiled

    def matcher(self, structure: Structure) -> Matcher:
        """What follows a new text of this form.

        Raises:
            InvalidArgumentError: there is no such form, or it takes too long to compile.
            UnsupportedError: the package is not installed, or the tokenizer is of a kind that it does not know.
        """
        compiled = self._found(structure)
        if compiled is None:
            with self._compiling:  # not the other lock: texts with forms that are known go on
                compiled = self._found(structure)
                if compiled is None:
                    compiled = self._outcome(structure)
                    with self._lock:
                        self._compiled[structure] = compiled
                        if len(self._compiled) > _KEPT:
                            self._compiled.popitem(last=False)
        if isinstance(compiled, HalimedeError):
            raise compiled.with_traceback(None)  # it may be raised many times
        return Matcher(compiled.deep_copy(), structure)

    def _found(self, structure: Structure) -> Any:
        with self._lock:
            compiled = self._compiled.get(structure)
            if compiled is not None:
                self._compiled.move_to_end(structure)
            return compiled

    def _outcome(self, structure: Structure) -> Any:
        """The compiled form, or the error that says why there is none."""
        began = monotonic()
        try:
            compiled = self._compile(structure)
        except HalimedeError as error:
            return error
        past = monotonic() - began
        if past > self._most_s:
            return structure.refused(
                f"compiling it took {past:.1f} s, and at most {self._most_s:g} s are allowed"
            )
        return compiled

    def _compile(self, structure: Structure) -> Any:
        try:
            from llguidance import LLMatcher, grammar_from
        except ImportError:
            msg = f"'{structure.field}' needs the package llguidance: pip install 'halimede[transformers]'"
            raise UnsupportedError(msg) from None
        try:
            if structure.kind is StructureKind.JSON_SCHEMA:
                schema = orjson.loads(structure.text)
                if isinstance(schema, dict):
                    schema = changed(schema, _without_unknown_format)
                text = orjson.dumps(schema).decode()
                grammar = LLMatcher.grammar_from_json_schema(text, overrides=_COMPACT)
            elif structure.kind is StructureKind.REGEX:
                grammar = grammar_from("regex", _of_ascii(structure.text))
            else:
                grammar = grammar_from(structure.kind.value, structure.text)
        except ValueError as error:
            raise structure.refused(str(error)) from None
        compiled = LLMatcher(self._words(), grammar, log_level=0)
        first = compiled.deep_copy()
        first.compute_bitmask()  # it has no time limit of its own
        for each in (compiled, first):
            if each.is_error():
                raise structure.refused(_first_line(each.get_error()))
        return compiled

    def _words(self) -> Any:
        if self._vocabulary is None:
            from llguidance.hf import from_tokenizer

            if not self._ends:
                raise InvalidArgumentError("texts of a form need a model with a token that ends texts")
            try:
                self._vocabulary = from_tokenizer(self._tokenizer, eos_token=self._ends)
            except ValueError as error:
                raise UnsupportedError(
                    f"texts of a form are not possible with this tokenizer: {error}"
                ) from None
        return self._vocabulary


def _without_unknown_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema; a format that nobody checks says nothing, as JSON Schema has it."""
    known = schema.get("format", "date")
    if not isinstance(known, str) or known in _FORMATS:
        return schema
    return {key: value for key, value in schema.items() if key != "format"}


def _of_ascii(regex: str) -> str:
    r"""The regular expression in which ``\d`` and ``\w`` are letters and digits of ASCII, as in ECMA-262."""
    return _ESCAPE.sub(lambda found: _ASCII.get(found[0], found[0]), regex)


def _first_line(text: str) -> str:
    """What an error of llguidance says, without the picture of the place."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error:")]
    return (
        " ".join([lines[0].removesuffix(":"), *(line.removeprefix("error: ") for line in told)])
        if lines
        else text
    )
