"""JSONPath expressions that select parts of records (`InputFilter`, `OutputFilter`).

The library is imported with the first expression: its import would be a tenth of the time in which a host starts.
"""

from typing import TYPE_CHECKING, Any

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.transform.failures import client_error

if TYPE_CHECKING:
    from jsonpath import JSONPath

_ALL = "$"


class Filter:
    """Selects what an expression says.

    An expression for one value selects that value; for several members of one object, an object with those; for
    anything else, a list.
    """

    def __init__(self, member: str, expression: str) -> None:
        """The filter of an expression.

        Args:
            member: what the request calls it, for error texts.
            expression: such as ``$[1:]``.

        Raises:
            ApiError: it is none.
        """
        from jsonpath import JSONPath, JSONPathError
        from jsonpath import compile as compile_path

        self._member = member
        self._expression = expression
        text = expression.strip() or _ALL
        self.is_all = text == _ALL
        try:
            path = compile_path(text.replace(".[", "["))  # AWS writes a dot before brackets too
        except JSONPathError as error:
            raise _refused(member, expression, str(error).partition("\n")[0]) from None
        if not text.startswith(_ALL) or not isinstance(path, JSONPath):
            raise _refused(member, expression, "it has to begin with $, and to be one expression")
        self._path = path
        self._is_singular = path.singular_query()
        self._is_object = _selects_members(path)

    def select(self, document: Any) -> Any:
        """The part of a document.

        Raises:
            TransformError: it has none.
        """
        if self.is_all:
            return document
        matches = list(self._path.finditer(document))
        if not matches:
            raise client_error(f"{self._member} '{self._expression}' selects nothing of a record")
        if self._is_singular:
            return matches[0].obj
        if self._is_object:
            return {match.parts[-1]: match.obj for match in matches}
        return [match.obj for match in matches]


def _selects_members(path: "JSONPath") -> bool:
    """Whether an expression is for several members of one object."""
    from jsonpath import JSONPath
    from jsonpath.segments import JSONPathChildSegment
    from jsonpath.selectors import NameSelector

    *before, last = path.segments or (None,)
    return (
        isinstance(last, JSONPathChildSegment)
        and all(isinstance(selector, NameSelector) for selector in last.selectors)
        and JSONPath(env=path.env, segments=before).singular_query()
    )


def _refused(member: str, expression: str, reason: str) -> ApiError:
    return invalid(f"DataProcessing.{member}: '{expression}' is no JSONPath: {reason}")
