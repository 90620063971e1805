"""What models print and log, in the server's log."""

import json
import re
from pathlib import Path

import pytest

from tests.python_models.support import (
    FLOATS,
    IMPORTS,
    ONES,
    Models,
    answering,
    executing,
    kill,
    serve_models,
)
from tests.support.waiting import wait_until

ANSWER = "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones(1, np.float32))])]"


def printing(body: str) -> str:
    return executing(f"{body}\n{ANSWER}")


def lines(models: Models, name: str) -> list[str]:
    """What the log has of the model's prints."""
    found = re.findall(rf"\] \"model '{name}' version 1: (.*)\"$", models.server.log, re.MULTILINE)
    return [json.loads(f'"{line}"') for line in found]


def expect(models: Models, name: str, expected: list[str]) -> None:
    wait_until(lambda: len(lines(models, name)) >= len(expected), f"{expected} in the log")
    assert lines(models, name) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("print('plain')", ["plain"]),
        ("print('a'); print('b'); print()", ["a", "b"]),
        ("print('two\\nlines')", ["two", "lines"]),
        ("print('ä€𝄞', end='\\n')", ["ä€𝄞"]),
        ("print('to stderr', file=sys.stderr)", ["to stderr"]),
        ("os.write(1, b'straight\\n')", ["straight"]),
        ("os.write(1, b'not utf-8 \\xff\\n')", ["not utf-8 �"]),
        ("import subprocess; subprocess.run(['echo', 'of a child'])", ["of a child"]),
        ("import ctypes; libc = ctypes.CDLL(None); libc.puts(b'from C'); libc.fflush(None)", ["from C"]),
        ("print('half', end=''); print(' and half')", ["half and half"]),
        ("print('10 %\\r20 %\\r30 %')", ["30 %"]),
        ("print('quote \" and \\\\ and \\x07')", ['quote " and \\ and \x07']),
        ("threading.Thread(target=print, args=('of a thread',)).start()", ["of a thread"]),
        ("import warnings; warnings.warn('careful', stacklevel=1)", []),
    ],
)
def test_what_is_printed_is_logged_with_the_model(models: Models, body: str, expected: list[str]) -> None:
    name = models.load(printing(body))
    models.infer(name)
    if not expected:
        wait_until(
            lambda: any("UserWarning: careful" in line for line in lines(models, name)),
            "the warning in the log",
        )
        return
    expect(models, name, expected)


def test_print_before_the_crash_is_logged_even_without_an_end_of_line(models: Models) -> None:
    name = models.load(executing("sys.stdout.write('last words'); os._exit(1)"))
    models.infer_error(name)
    expect(models, name, ["last words"])


def test_print_at_the_end_without_an_end_of_line_is_logged(models: Models) -> None:
    name = models.load(answering("x") + "\n    def finalize(self):\n        sys.stdout.write('put away')\n")
    models.http.unload_model(name)
    expect(models, name, ["put away"])


def test_print_while_it_is_imported_is_logged(models: Models) -> None:
    name = models.write("")
    file = models.repository / name / "1" / "model.py"
    file.write_text(IMPORTS + "print('importing')\nraise ValueError('stop here')\n")
    with pytest.raises(Exception, match="stop here"):
        models.http.load_model(name)
    wait_until(lambda: "importing" in lines(models, name), "the line in the log")


def test_huge_line_is_cut_into_pieces_and_nothing_is_lost(models: Models) -> None:
    name = models.load(printing("print('é' * 100_000)"))
    models.infer(name)
    wait_until(lambda: sum(map(len, lines(models, name))) >= 100_000, "all of it", 10)
    assert "".join(lines(models, name)) == "é" * 100_000


def test_flood_of_prints_is_logged_in_order_and_the_server_goes_on(models: Models) -> None:
    name = models.load(printing("for i in range(20000): print(i)"))
    other = models.load(answering("x"))
    models.infer(name)
    models.infer(other)
    wait_until(lambda: len(lines(models, name)) >= 20000, "all lines", 20)
    assert lines(models, name) == [str(i) for i in range(20000)]


def test_print_cannot_imitate_a_line_of_the_log(models: Models) -> None:
    name = models.load(printing("print('\\nE1120 00:00:00.000000 1 fake.py:1] \"pwned\"')"))
    models.infer(name)
    expect(models, name, ['E1120 00:00:00.000000 1 fake.py:1] "pwned"'])
    assert not re.search(r"^E1120 00:00:00", models.server.log, re.MULTILINE)


def test_printing_does_not_fail_when_the_process_is_killed_and_comes_back(models: Models) -> None:
    name = models.load(printing("print('again')"))
    for count in range(1, 4):
        models.infer(name)
        expect(models, name, ["again"] * count)
        kill(models.pids(name)[0])


# Logger and logging

LOGGING = """
class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        self.say("initialize")
    def say(self, where):
        pb_utils.Logger.log(f"{self.name} {where} default")
        pb_utils.Logger.log_info(f"{self.name} {where} info")
        pb_utils.Logger.log_warn(f"{self.name} {where} warn")
        pb_utils.Logger.log_error(f"{self.name} {where} error")
        pb_utils.Logger.log_verbose(f"{self.name} {where} verbose")
    def execute(self, requests):
        self.say("execute")
        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones(1, np.float32))]) for _ in requests]
    def finalize(self):
        self.say("finalize")
"""


def logged(models: Models, text: str) -> list[str]:
    return [line for line in models.server.log.splitlines() if line.endswith(f'] "{text}"')]


def test_logger_lines_have_level_file_and_line(models: Models) -> None:
    name = models.load(LOGGING)
    models.infer(name)
    models.http.unload_model(name)
    models.server.wait_for(f"{name} finalize error")
    for where in ("initialize", "execute", "finalize"):
        for letter, level, line in (
            ("I", "default", 8),
            ("I", "info", 9),
            ("W", "warn", 10),
            ("E", "error", 11),
        ):
            (found,) = logged(models, f"{name} {where} {level}")
            assert re.match(
                rf"{letter}\d{{4}} [0-9:.]+ {models.server.process.pid} model\.py:{line}\]", found
            ), found
        assert not logged(models, f"{name} {where} verbose")


def test_verbose_lines_are_logged_when_the_log_is_verbose(tmp_path: Path) -> None:
    with serve_models(tmp_path, "--log-verbose=1") as models:
        name = models.load(LOGGING)
        models.server.wait_for(f"{name} initialize verbose")


def test_pythons_logging_reaches_the_log(models: Models) -> None:
    name = models.new_name()
    source = printing(f"""
import logging
logging.getLogger("mine").warning("{name} by logging %d", 5)
logging.info("{name} by the root")
logging.debug("{name} too fine")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("{name} with a traceback")
""")
    models.load(source, name=name)
    models.infer(name)
    models.server.wait_for(f"{name} with a traceback")
    log = models.server.log
    assert re.search(rf"^W.* model\.py:\d+\] \"{name} by logging 5\"$", log, re.MULTILINE)
    assert re.search(rf"^I.* model\.py:\d+\] \"{name} by the root\"$", log, re.MULTILINE)
    assert re.search(rf"^E.* model\.py:\d+\] \"{name} with a traceback\\nTraceback", log, re.MULTILINE)
    assert "too fine" not in log


@pytest.mark.parametrize("text", ["'\\ud800'", "None", "5"])
def test_what_is_no_text_is_refused_by_the_logger(models: Models, text: str) -> None:
    name = models.load(executing(f"pb_utils.Logger.log_info({text})"))
    assert "TypeError" in models.infer_error(name)[1]


def test_order_of_logged_lines_is_kept(models: Models) -> None:
    name = models.new_name()
    models.load(
        printing(f"for i in range(3000): pb_utils.Logger.log_info(f'line {{i}} of {name}')"), name=name
    )
    models.infer(name, ONES)
    models.server.wait_for(f'line 2999 of {name}"', 60)
    assert [int(i) for i in re.findall(rf"\"line (\d+) of {name}\"", models.server.log)] == list(range(3000))


def test_quiet_model_adds_nothing_to_the_log(models: Models) -> None:
    name = models.load(answering("x"), FLOATS)
    models.infer(name)
    assert lines(models, name) == []
