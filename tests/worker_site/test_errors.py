"""Errors of models: `TritonError`, and exceptions as text."""

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest

from halimede_worker.errors import ErrorCode, TritonError, TritonModelException, describe

CODES = [
    ("UNKNOWN", 0),
    ("INTERNAL", 1),
    ("NOT_FOUND", 2),
    ("INVALID_ARG", 3),
    ("UNAVAILABLE", 4),
    ("UNSUPPORTED", 5),
    ("ALREADY_EXISTS", 6),
    ("CANCELLED", 7),
]


@pytest.mark.parametrize(("name", "number"), CODES)
def test_code_is_a_class_attribute_with_the_number_of_the_original(name: str, number: int) -> None:
    code = getattr(TritonError, name)
    assert int(code) == number
    assert TritonError("no", code).code() == code
    assert TritonError(message="no", code=code).code() == code


def test_error_is_internal_unless_it_says_otherwise() -> None:
    error = TritonError("broken")
    assert error.message() == "broken"
    assert error.code() == TritonError.INTERNAL
    assert error.code() != TritonError.UNKNOWN


def test_message_may_be_bytes() -> None:
    assert TritonError("é".encode()).message() == "é"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (None,),
        (5,),
        (ValueError("x"),),
        ("x", 1),
        ("x", None),
        ("x", "INTERNAL"),
        ("\ud800",),
        (b"\xff",),
    ],
)
def test_error_of_other_types_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        TritonError(*arguments)  # type: ignore[arg-type]


def test_refusal_shows_how_the_call_would_be_right() -> None:
    with pytest.raises(TypeError) as caught:
        TritonError("x", 1)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "__init__(): incompatible constructor arguments. The following argument types are supported:\n"
        "    1. TritonError(message: str, code: ErrorCode = TritonError.INTERNAL)\n"
        "\n"
        "code must be ErrorCode, got <class 'int'>"
    )


def test_error_cannot_be_raised_nor_get_attributes() -> None:
    with pytest.raises(TypeError):
        raise TritonError("x")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        TritonError("x").note = 1  # type: ignore[attr-defined]


def test_code_of_an_error_is_an_enumeration_member() -> None:
    assert TritonError("x").code() is ErrorCode.INTERNAL


# Exceptions as text


class Model:
    """Code as a model would hold it, in a file of its own."""

    def __init__(self, directory: Path, source: str) -> None:
        self.path = directory / "model.py"
        self.path.write_text(textwrap.dedent(source))
        self.names: dict[str, object] = {}

    def run(self) -> None:
        exec(compile(self.path.read_text(), str(self.path), "exec"), self.names)

    def failure(self, call: str | None = None) -> BaseException:
        """What comes out of running the file, or of a function in it."""
        if call is not None:
            self.run()
        try:
            if call is None:
                self.run()
            else:
                self.names[call]()  # type: ignore[operator]
        except BaseException as error:
            # the frame of this method stands for the worker's own, which are never shown
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            return error
        raise AssertionError("it did not fail")


def test_innermost_frame_comes_first(tmp_path: Path) -> None:
    model = Model(
        tmp_path,
        """\
        def divide():
            return 1 / 0

        def execute():
            divide()
        """,
    )
    assert describe(model.failure("execute")) == (
        f"ZeroDivisionError: division by zero\n\nAt:\n  {model.path}(2): divide\n  {model.path}(5): execute\n"
    )


def test_line_is_where_it_was_raised_and_not_where_it_was_cleaned_up(tmp_path: Path) -> None:
    model = Model(
        tmp_path,
        """\
        def execute():
            try:
                raise KeyError("k")
            finally:
                print("bye")
        """,
    )
    assert describe(model.failure("execute")) == f"KeyError: 'k'\n\nAt:\n  {model.path}(3): execute\n"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>"),
        ("raise GeneratorExit", "GeneratorExit: <EMPTY MESSAGE>"),
        ("raise ValueError('')", "ValueError: <EMPTY MESSAGE>"),
        ("undefined", "NameError: name 'undefined' is not defined"),
        ("assert False", "AssertionError: <EMPTY MESSAGE>"),
        ("raise ValueError('two\\nlines')", "ValueError: two\nlines"),
        ("raise ValueError('\\ud800')", "ValueError: \\ud800"),
    ],
)
def test_any_exception_is_told_by_its_type_and_message(tmp_path: Path, statement: str, text: str) -> None:
    model = Model(tmp_path, f"def execute():\n    {statement}\n")
    assert describe(model.failure("execute")) == f"{text}\n\nAt:\n  {model.path}(2): execute\n"


def test_exception_of_the_library_has_its_bare_name(tmp_path: Path) -> None:
    error = TritonModelException("init bad")
    assert describe(error) == "TritonModelException: init bad"


def test_only_the_outer_of_chained_exceptions_is_told(tmp_path: Path) -> None:
    model = Model(
        tmp_path,
        """\
        def execute():
            try:
                raise ValueError("inner")
            except ValueError as error:
                raise RuntimeError("outer") from error
        """,
    )
    assert describe(model.failure("execute")) == f"RuntimeError: outer\n\nAt:\n  {model.path}(5): execute\n"


def test_syntax_error_has_no_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halimede_bad_syntax.py").write_text("def execute()\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SyntaxError) as caught:
        __import__("halimede_bad_syntax")
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this test's own frame
    assert describe(error) == f"SyntaxError: {error}"
    assert "(halimede_bad_syntax.py, line 1)" in describe(error)


def test_failed_import_shows_the_import_system_as_the_original_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "halimede_bad_import.py"
    module.write_text("import numpy\nimport halimede_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError) as caught:
        __import__("halimede_bad_import")
    text, at, *places = (
        describe(caught.value).rstrip("\n").split("\n")[:1]
        + describe(caught.value).rstrip("\n").split("\n")[2:]
    )
    assert text == "ModuleNotFoundError: No module named 'halimede_no_such_module'"
    assert at == "At:"
    assert places[0] == f"  {module}(2): <module>"
    assert any(place.startswith("  <frozen importlib._bootstrap>(") for place in places[1:])
    assert places[-1].endswith("test_failed_import_shows_the_import_system_as_the_original_does")


def test_frames_of_the_library_are_left_out(tmp_path: Path) -> None:
    model = Model(
        tmp_path,
        """\
        from halimede_worker.errors import TritonError

        def execute():
            TritonError(None)
        """,
    )
    lines = describe(model.failure("execute")).split("\n")
    assert lines[lines.index("At:") + 1 :] == [f"  {model.path}(4): execute", ""]


def test_exception_of_a_coroutine_shows_who_awaited_it(tmp_path: Path) -> None:
    model = Model(
        tmp_path,
        """\
        import asyncio

        async def fetch():
            await asyncio.sleep(0)
            raise OSError("gone")

        async def execute():
            await fetch()
        """,
    )
    model.run()

    async def failure() -> str:
        [error] = await asyncio.gather(model.names["execute"](), return_exceptions=True)  # type: ignore[operator]
        return describe(error)

    assert asyncio.run(failure()) == (
        f"OSError: gone\n\nAt:\n  {model.path}(5): fetch\n  {model.path}(8): execute\n"
    )


def test_recursion_is_told_in_full(tmp_path: Path) -> None:
    model = Model(tmp_path, "def execute():\n    execute()\n")
    text = describe(model.failure("execute"))
    assert text.startswith("RecursionError: maximum recursion depth exceeded")
    assert text.count(f"  {model.path}(2): execute\n") > 100


def test_exception_that_cannot_be_shown_is_told_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise SystemExit("no")

    assert describe(MuteError()) == (
        "MuteError: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>\n"
        "MESSAGE UNAVAILABLE DUE TO EXCEPTION: SystemExit"
    )


def test_exception_with_a_message_that_is_no_text_is_told_all_the_same() -> None:
    class NumericError(Exception):
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]

    assert describe(NumericError()).endswith("MESSAGE UNAVAILABLE DUE TO EXCEPTION: TypeError")


def test_exception_that_was_never_raised_has_no_frames() -> None:
    assert describe(ValueError("x")) == "ValueError: x"
    assert sys.exc_info() == (None, None, None)
