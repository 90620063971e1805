"""The shortest server: a function, and a line that serves it."""

from halimede import serve


def add(a: float, b: float) -> float:
    return a + b


serve(add)
