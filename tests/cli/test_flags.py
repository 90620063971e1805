import re
from pathlib import Path

import click
import pytest

from halimede.cli.flags import flags_document, serve_command
from halimede.cli.options import GROUPS, SETTINGS, ServeOptions

ROOT = Path(__file__).parent.parent.parent


def parse(*arguments: str) -> tuple[ServeOptions, list[str]]:
    """What `halimede serve` makes of the arguments."""
    parsed: list[tuple[ServeOptions, list[str]]] = []

    def run(options: ServeOptions, remarks: list[str]) -> int:
        parsed.append((options, remarks))
        return 0

    serve_command(run).main(list(arguments), standalone_mode=False)
    return parsed[0]


def refusal(*arguments: str) -> str:
    """The one line that the arguments earn."""
    with pytest.raises(click.ClickException) as caught:
        parse(*arguments)
    message = caught.value.format_message()
    assert "\n" not in message
    return message


def test_without_flags_everything_has_tritonservers_default() -> None:
    options, remarks = parse()
    assert (options.http_port, options.grpc_port, options.metrics_port) == (8000, 8001, 8002)
    assert options.http_address == "0.0.0.0"
    assert options.exit_timeout_secs == 30
    assert options.http_max_input_size == 67108864
    assert options.strict_readiness is True
    assert options.model_control_mode == "none"
    assert remarks == []


def test_a_value_follows_an_equals_sign_or_a_space() -> None:
    options, _ = parse("--http-port=8100", "--grpc-port", "8101", "--log-file", "a b")
    assert (options.http_port, options.grpc_port, options.log_file) == (8100, 8101, "a b")


def test_a_bool_flag_alone_means_true() -> None:
    options, _ = parse("--disable-auto-complete-config", "--reuse-http-port", "--strict-readiness", "off")
    assert options.disable_auto_complete_config
    assert options.reuse_http_port
    assert not options.strict_readiness


def test_repeatable_flags_collect_and_others_take_the_last_value() -> None:
    options, _ = parse("--model-repository=b", "--model-store=a", "--id=one", "--id=two")
    assert options.model_repository == ("b", "a")
    assert options.id == "two"


def test_a_flag_may_be_cut_short_while_it_is_unique() -> None:
    options, _ = parse("--model-repo=models")
    assert options.model_repository == ("models",)
    assert refusal("--log-f=x") == "--log-f is short for several flags: --log-file, --log-format"


def test_an_unknown_flag_names_the_nearest() -> None:
    assert refusal("--htp-port=1") == "unknown flag --htp-port; the nearest is --http-port"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--http-port=no"], "--http-port: 'no' is not a whole number"),
        (["--http-max-input-size=0"], "--http-max-input-size: 0 is out of range; it must be at least 1"),
        (["--log-format=xml"], "--log-format: 'xml' is not one of 'default', 'ISO8601', 'json'"),
        (["--http-port"], "Option '--http-port' requires an argument."),
        (
            ["--model-control-mode=pol"],
            "--model-control-mode: 'pol' is not one of 'none', 'poll', 'explicit', 'ondemand'; did you mean 'poll'?",
        ),
        (["--log-info=maybe"], "--log-info: 'maybe' is no boolean; write true, on, 1, false, off or 0"),
        (
            ["models"],
            "'models' is no flag; to serve the model repository 'models', write --model-repository=models",
        ),
        (["--model-config-name="], "empty argument for --model-config-name"),
        (["--model-load-gpu-limit=-1:0.6"], "--model-load-gpu-limit: expects device ID >= 0, got -1"),
        (
            ["--model-load-gpu-limit=0:-0.4"],
            "--model-load-gpu-limit: expects limit fraction to be in range [0.0, 1.0], got -0.4",
        ),
        (
            ["--model-load-gpu-limit=0:nan"],
            "--model-load-gpu-limit: expects limit fraction to be in range [0.0, 1.0], got nan",
        ),
        (["--model-load-gpu-limit=0.5"], "--model-load-gpu-limit: '0.5' is not of the form DEVICE:FRACTION"),
        (["--model-load-gpu-limit=x:0.5"], "--model-load-gpu-limit: 'x' is not a whole number"),
        (
            ["--cuda-memory-pool-byte-size=0:-5"],
            "--cuda-memory-pool-byte-size: -5 is out of range; it must be at least 0",
        ),
        (["--cuda-virtual-address-size=-2:5"], "--cuda-virtual-address-size: expects device ID >= 0, got -2"),
    ],
)
def test_a_wrong_value_is_told_in_one_line(arguments: list[str], line: str) -> None:
    assert refusal(*arguments) == line


def test_the_deprecated_size_of_the_response_cache_is_remarked_on() -> None:
    options, remarks = parse("--response-cache-byte-size=4096")
    assert options.response_cache_byte_size == 4096
    (remark,) = remarks
    assert remark == (
        "Warning: '--response-cache-byte-size' has been deprecated! This will default to the 'local' cache "
        "implementation with the provided byte size for its config. Please use '--cache-config' instead. The "
        "equivalent --cache-config CLI args would be: '--cache-config=local,size=4096'"
    )
    assert parse("--response-cache-byte-size=0")[1] == []


def test_metrics_of_gpus_that_are_asked_for_and_cannot_be_had_are_remarked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("halimede.cli.flags.missing_for_metrics", lambda: "there is no NVIDIA GPU here")
    options, remarks = parse("--allow-gpu-metrics")
    assert options.allow_gpu_metrics
    assert remarks == ["--allow-gpu-metrics has no effect: there is no NVIDIA GPU here"]
    assert parse("--allow-gpu-metrics=false") == (ServeOptions(allow_gpu_metrics=False), [])
    assert parse()[1] == []


def test_flags_without_effect_are_remarked_on() -> None:
    _, remarks = parse("--http-thread-count=16", "--cuda-memory-pool-byte-size=0:1", "--cache-directory=/x")
    assert [remark.partition(": ")[0] for remark in remarks] == [
        "--http-thread-count has no effect here",
        "--cuda-memory-pool-byte-size has no effect here",
        "--cache-directory has no effect here",
    ]


def test_the_interval_of_metrics_may_have_a_fraction_as_in_tritonserver() -> None:
    assert parse("--metrics-interval-ms=1500.5")[0].metrics_interval_ms == 1500
    for text in ("0", "-1", "nan", "inf", "0.5"):
        assert refusal(f"--metrics-interval-ms={text}").endswith("is out of range; it must be at least 1")
    assert refusal("--metrics-interval-ms=x") == "--metrics-interval-ms: 'x' is not a number"


def test_the_deprecated_flag_is_remarked_on_in_tritonservers_words() -> None:
    options, remarks = parse("--strict-model-config=false", "--disable-auto-complete-config")
    assert options.disable_auto_complete_config
    deprecated, overridden = remarks
    assert deprecated == (
        "Warning: '--strict-model-config' has been deprecated! "
        "Please use '--disable-auto-complete-config' instead."
    )
    assert overridden == (
        "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of "
        "'--disable-auto-complete-config'!"
    )


def test_help_shows_every_flag_in_its_group() -> None:
    command = serve_command(lambda _options, _remarks: 0)
    text = command.get_help(click.Context(command, info_name="serve"))
    for group in GROUPS:
        assert f"\n{group}:\n" in text
    for each in SETTINGS:
        assert f"\n  --{each.name}" in text
    assert "\n  --version\n" in text
    assert "--help\n" in text


def test_help_breaks_no_flag_at_the_end_of_a_line() -> None:
    command = serve_command(lambda _options, _remarks: 0)
    for width in (60, 80, 100):
        text = command.get_help(click.Context(command, info_name="serve", terminal_width=width))
        assert max(map(len, text.splitlines())) <= width
        assert not [line for line in text.splitlines() if line.endswith("-")]


def test_every_default_is_a_value_that_the_flag_takes() -> None:
    for each in SETTINGS:
        if each.default not in ((), "") and not each.repeatable:
            assert (
                each.kind.parse(str(each.default).lower() if each.kind.bare else str(each.default))
                == each.default
            )


def test_only_settings_that_do_something_are_options() -> None:
    works = {each.attribute for each in SETTINGS if not each.reason}
    assert works == set(ServeOptions.__dataclass_fields__)


def test_the_page_about_flags_is_fresh() -> None:
    assert (ROOT / "docs" / "flags.md").read_text() == flags_document(), "run `make docs`"


def test_an_unknown_flags_value_is_not_repeated() -> None:
    with pytest.raises(click.UsageError) as refused:
        parse("--http-restricted-apis:inference:key=s3cr3t:s3cr3t")
    with pytest.raises(click.UsageError) as without_equals:
        parse("--http-restricted-apis:inference:s3cr3t")
    for text in (refused.value.message, without_equals.value.message):
        assert text == "unknown flag --http-restricted-apis; the nearest is --http-restricted-api"


def test_an_argument_behind_a_restricted_api_is_not_repeated() -> None:
    with pytest.raises(click.UsageError) as refused:
        parse("--http-restricted-api=inference:key=", "s3cr3t")
    assert "s3cr3t" not in refused.value.message
    assert "the value of --http-restricted-api without spaces" in refused.value.message


def test_the_page_on_security_names_flags_that_there_are() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", page))
    of_the_host, of_curl = (
        {"address", "allow-program-images", "allow-loopback-subscriptions"},
        {"cacert", "cert", "key"},
    )
    assert named - of_the_host - of_curl <= {each.name for each in SETTINGS}
    assert {each.name for each in SETTINGS if each.group == "Access"} <= named
