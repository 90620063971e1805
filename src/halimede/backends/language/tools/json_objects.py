"""JSON objects in a text that comes piece by piece."""


class JsonObjects:
    """Finds objects that are not within others; what stands between them is left out.

    Attributes:
        unfinished: the object that has begun and has not ended.
    """

    def __init__(self) -> None:
        self.unfinished = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def take(self, text: str) -> tuple[list[str], str]:
        """The first object that ends in a piece of text, if any, and the rest of the text behind it."""
        for place, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = self._depth > 0
            elif character == "{":
                self._depth += 1
            elif character == "}" and self._depth:
                self._depth -= 1
                if not self._depth:
                    found = self.unfinished + "}"
                    self.unfinished = ""
                    return [found], text[place + 1 :]
            if self._depth:
                self.unfinished += character
        return [], ""
