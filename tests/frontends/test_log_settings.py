from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.frontends.log_settings import LogControl, LogSettings


def control(applied: list[LogSettings]) -> LogControl:
    return LogControl(LogSettings(file=Path("/log")), applied.append)


def test_the_document_has_the_protocols_names_in_its_order() -> None:
    assert list(LogControl().document().items()) == [
        ("log_file", ""),
        ("log_info", True),
        ("log_warning", True),
        ("log_error", True),
        ("log_verbose_level", 0),
        ("log_format", "default"),
    ]


def test_changes_are_applied_and_told() -> None:
    applied: list[LogSettings] = []
    log = control(applied)
    log.change({"log_warning": False, "log_verbose_level": 2, "unknown": 1})
    assert applied == [LogSettings(warning=False, verbose=2, file=Path("/log"))]
    assert log.document() == {
        "log_file": "/log",
        "log_info": True,
        "log_warning": False,
        "log_error": True,
        "log_verbose_level": 2,
        "log_format": "default",
    }


def test_nothing_to_change_changes_nothing() -> None:
    applied: list[LogSettings] = []
    control(applied).change({"unknown": 1})
    assert applied == []


def test_the_file_stays() -> None:
    applied: list[LogSettings] = []
    with pytest.raises(UnsupportedError) as caught:
        control(applied).change({"log_info": False, "log_file": "x"})
    assert caught.value.message == "log file location can not be updated through network protocol"
    assert applied == []


def test_an_unknown_format_changes_nothing() -> None:
    applied: list[LogSettings] = []
    with pytest.raises(InvalidArgumentError) as caught:
        control(applied).change({"log_info": False, "log_format": "iso8601"})
    assert caught.value.message == "invalid argument for --log_format, got: iso8601"
    assert applied == []


def test_a_level_beyond_an_int_is_none() -> None:
    log = control([])
    log.change({"log_verbose_level": 1 << 31})
    assert log.settings.verbose == 0
