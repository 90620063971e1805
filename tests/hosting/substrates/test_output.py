"""What is read out of a log when its instance has failed."""

from pathlib import Path

import pytest

from halimede.hosting.substrates.output import failure_in

STAMP = "1123 08:11:56.359183 7762 model_loader.py:287]"
TRACE = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("one\n\n  two\n", "; its last lines: one / two"),
        (
            f'E{STAMP} "failed to load \'m\': \\"x\\"\\n\\nAt:\\n  model.py(3)"\nthe end\n',
            ": failed to load 'm': \"x\"",
        ),
        (f"E{STAMP} not quoted\nI{STAMP} the end\n", ": not quoted"),
        (f"E{STAMP} 12\nI{STAMP} the end\n", ": 12"),
        (f"E{STAMP} a\nE{STAMP} b\nE{STAMP} a\nE{STAMP} c\nE{STAMP} d\n", ": a; b; c"),
        (f"E{STAMP} a\nE{STAMP} failed to load all models\n", ": a"),
        (f"E{STAMP} no CUDA\nE{STAMP} failed to load 'm': x\nE{STAMP} y\n", ": failed to load 'm': x"),
        (f"E{STAMP} no CUDA\nE{STAMP} failed to load all models\n", ": no CUDA"),
        (f"E{STAMP} failed to load all models\n", ": failed to load all models"),
        (f"{TRACE}\n  x\nValueError: first\n\n\n{TRACE}\n  x\n    y\nOSError: second\nbye\n", ": OSError: second"),
        (f"{TRACE}\n  cut off\n", f"; its last lines: {TRACE} / cut off"),
        (f"{TRACE}\n  x\nOSError: x\nE{STAMP} logged\n", ": logged"),
        (f"E{STAMP} {'x' * 2000}\n", f": {'x' * 599}…"),
        (f"E{STAMP} old\n" + "line\n" * 20_000, "; its last lines: " + " / ".join(["line"] * 6)),
        ("\udcff\n", "; its last lines: \ufffd"),
    ],
)  # fmt: skip
def test_cause_comes_before_the_last_lines(tmp_path: Path, text: str, told: str) -> None:
    log = tmp_path / "i.log"
    log.write_bytes(text.encode(errors="surrogateescape"))
    assert failure_in(log) == told


def test_log_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert failure_in(tmp_path / "i.log") == ""
