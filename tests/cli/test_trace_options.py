from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.cli.options import ServeOptions
from halimede.cli.trace_options import trace_config
from halimede.engine.tracing.settings import TENSORS, TIMESTAMPS, TraceMode
from tests.cli.test_flags import parse


def settings(*entries: str, **deprecated: Any) -> tuple[tuple[str, ...], int, int, int, str]:
    """Levels, rate, count, log frequency and file."""
    config = trace_config(ServeOptions(trace_config=entries, **deprecated))
    made = config.settings
    return made.levels, made.rate, made.count, made.log_frequency, config.file


def test_without_flags_nothing_is_traced() -> None:
    assert settings() == ((), 1000, -1, 0, "")
    assert trace_config(ServeOptions()).mode is TraceMode.TRITON


def test_each_setting_is_a_flag() -> None:
    given = ("level=TIMESTAMPS", "rate=5", "count=7", "triton,log-frequency=3", "triton,file=/t,1=2.json")
    assert settings(*given) == ((TIMESTAMPS,), 5, 7, 3, "/t,1=2.json")


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["OFF"], ()),
        (["false"], ()),
        (["timestamps"], (TIMESTAMPS,)),
        (["min"], (TIMESTAMPS,)),
        (["MAX"], (TIMESTAMPS,)),
        (["on"], (TIMESTAMPS,)),
        (["Tensors", "TIMESTAMPS"], (TIMESTAMPS, TENSORS)),
        (["OFF", "TENSORS"], (TENSORS,)),
    ],
)
def test_levels_add_up(levels: list[str], expected: tuple[str, ...]) -> None:
    assert settings(*(f"level={level}" for level in levels))[0] == expected
    assert settings(trace_level=tuple(levels))[0] == expected


def test_the_last_value_counts() -> None:
    assert settings("rate=5", "rate=6")[1] == 6


def test_the_deprecated_flags_say_the_same() -> None:
    assert settings(
        trace_level=("TENSORS",), trace_rate=5, trace_count=7, trace_log_frequency=3, trace_file="t.json"
    ) == ((TENSORS,), 5, 7, 3, "t.json")


def test_trace_config_goes_before_the_deprecated_flags() -> None:
    assert settings("rate=6", "triton,file=new", trace_rate=5, trace_file="old")[1::3] == (6, "new")


def test_the_deprecated_flags_are_remarked_on_in_tritonservers_words() -> None:
    _, remarks = parse("--trace-level=OFF", "--trace-log-frequency=1")
    deprecated = "has been deprecated and will be removed in future releases. Please use '--trace-config"
    frequency = "triton,log-frequency=<log frequency value>"
    assert remarks == [
        f"Warning: '--trace-level' {deprecated} level=<OFF|TIMESTAMPS|TENSORS> instead.",
        f"Warning: '--trace-log-frequency' {deprecated} {frequency} instead.",
    ]


def test_settings_of_the_mode_are_kept_as_often_as_they_are_given() -> None:
    config = trace_config(
        ServeOptions(
            trace_config=(
                "mode=opentelemetry",
                "opentelemetry,url=http://host:4318/v1/traces",
                "opentelemetry,resource=a=b",
                "opentelemetry,resource=c=d",
                "triton,file=unused",
            )
        )
    )
    assert config.mode is TraceMode.OPENTELEMETRY
    assert config.options == {"url": ("http://host:4318/v1/traces",), "resource": ("a=b", "c=d")}


def test_modes_have_any_letter_case() -> None:
    entries = ("mode=OpenTelemetry", "OPENTELEMETRY,url=http://host:4318", "Triton,file=here")
    config = trace_config(ServeOptions(trace_config=entries))
    assert (config.mode, config.file) == (TraceMode.OPENTELEMETRY, "here")
    assert config.options == {"url": ("http://host:4318",)}


FORM = "--trace-config option format is '<trace mode>,<setting>=<value>'. Got "
LEVELS = "there are OFF, TIMESTAMPS and TENSORS"
MODES = 'Available options are "triton" and "opentelemetry"'


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("triton", f"{FORM}triton"),
        ("level", f"{FORM}level"),
        ("=x", f"{FORM}=x"),
        ("triton,file=", f"{FORM}triton,file="),
        ("foo,file=x", f"invalid value for trace mode option: foo. {MODES}"),
        ("rate=5,level=TENSORS", "--trace-config rate: '5,level=TENSORS' is not a whole number"),
        ("mode=foo", f"invalid value for trace mode option: foo. {MODES}"),
        ("level=FOO", f"--trace-config level: invalid value for trace level option: FOO; {LEVELS}"),
        ("rate=abc", "--trace-config rate: 'abc' is not a whole number"),
        ("rate=-1", "--trace-config rate: -1 is out of range; it must be from 0 to 4294967295"),
        ("rate=99999999999", "--trace-config rate: 99999999999 is out of range; it must be from 0 to 4294967295"),
        ("count=-2", "--trace-config count: -2 is out of range; it must be from -1 to 2147483647"),
        ("triton,log-frequency=x", "--trace-config triton,log-frequency: 'x' is not a whole number"),
        ("rat=5", "--trace-config: there is no setting 'rat'; did you mean rate?"),
        ("triton,fil=x", "--trace-config: there is no setting 'triton,fil'; did you mean file?"),
        ("file=x", "--trace-config: there is no setting 'file'; there are level, rate, count, mode; write triton,file"),
        ("triton,rate=5", "--trace-config: there is no setting 'triton,rate'; there are file, log-frequency"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(entry: str, text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        settings(entry)
    assert caught.value.message == text


@given(
    st.lists(
        st.one_of(
            st.text(),
            st.builds(
                "{}{}={}".format,
                st.sampled_from(["", "triton,", "opentelemetry,", ","]),
                st.sampled_from(["level", "rate", "count", "mode", "file", "log-frequency", "url"]),
                st.one_of(st.text(), st.integers().map(str)),
            ),
        )
    )
)
def test_any_value_is_taken_or_refused(entries: list[str]) -> None:
    try:
        config = trace_config(ServeOptions(trace_config=tuple(entries)))
    except click.UsageError:
        return
    assert 0 <= config.settings.rate < 1 << 32
    assert -1 <= config.settings.count < 1 << 31
    assert 0 <= config.settings.log_frequency < 1 << 32
    assert set(config.settings.levels) <= {TIMESTAMPS, TENSORS}
