from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from halimede.cli.check import checks
from halimede.cli.check.checks import (
    backend_settings,
    check,
    metrics_switches,
    model_memory_budget,
    receive_memory_budget,
    receive_memory_share,
    summary_quantiles,
)
from halimede.cli.options import ServeOptions
from halimede.core.memory import memory_limit


@pytest.fixture
def options(tmp_path: Path) -> ServeOptions:
    return ServeOptions(model_repository=(str(tmp_path),))


def refusal(options: ServeOptions) -> str:
    with pytest.raises(click.UsageError) as caught:
        check(options)
    return caught.value.format_message()


def test_a_directory_of_models_is_enough(options: ServeOptions) -> None:
    check(options)


def test_a_repository_is_required() -> None:
    assert refusal(ServeOptions()) == "--model-repository must be specified: name a directory of models"


def test_a_missing_repository_is_told_by_name(tmp_path: Path, options: ServeOptions) -> None:
    missing = str(tmp_path / "missing")
    assert refusal(replace(options, model_repository=(missing,))) == (
        f"--model-repository: '{missing}' does not exist"
    )
    assert refusal(replace(options, model_repository=("",))) == "--model-repository: '' does not exist"
    file = tmp_path / "file"
    file.touch()
    assert refusal(replace(options, model_repository=(str(file),))).endswith("is not a directory")


def test_a_bucket_needs_a_url_of_the_right_form(options: ServeOptions) -> None:
    assert refusal(replace(options, model_repository=("s3://",))) == (
        "--model-repository: 's3://' is no URL of a model repository; expected s3://BUCKET/PATH or "
        "s3://https://HOST:PORT/BUCKET/PATH"
    )
    check(replace(options, model_repository=("s3://bucket/models", "gs://bucket", "as://account/container")))
    assert refusal(replace(options, cloud_cache_size="much")) == (
        "--cloud-cache-size: 'much' is no size; it must be a number of bytes (200GiB, 500MB) or a share of the disk "
        "(80%, 0.8)"
    )


def test_start_up_models_need_explicit_mode(options: ServeOptions) -> None:
    assert refusal(replace(options, load_model=("a",))).startswith(
        "Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
    )
    check(replace(options, load_model=("a",), model_control_mode="explicit"))
    check(replace(options, load_model=("a",), model_control_mode="ondemand"))


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_a_memory_budget_needs_a_mode_in_which_models_may_be_absent(options: ServeOptions, mode: str) -> None:
    assert refusal(replace(options, model_memory_budget="1GiB", model_control_mode=mode)) == (
        f"--model-memory-budget needs --model-control-mode=ondemand or explicit; mode {mode} keeps all models "
        "loaded, whatever they take"
    )


def test_a_memory_budget_must_be_one(options: ServeOptions) -> None:
    on_demand = replace(options, model_control_mode="ondemand")
    assert refusal(replace(on_demand, model_memory_budget="much")).startswith(
        "--model-memory-budget: 'much' is not a budget; it must be a number of bytes"
    )


def test_on_demand_the_memory_budget_is_a_share_of_what_the_server_may_use(options: ServeOptions) -> None:
    assert model_memory_budget(options) is None
    assert model_memory_budget(replace(options, model_control_mode="explicit")) is None
    on_demand = replace(options, model_control_mode="ondemand")
    assert model_memory_budget(on_demand) == int(0.8 * memory_limit())
    assert model_memory_budget(replace(on_demand, model_memory_budget="50%")) == int(0.5 * memory_limit())
    explicit = replace(options, model_control_mode="explicit", model_memory_budget="2KiB")
    assert model_memory_budget(explicit) == 2048


def test_memory_for_request_bodies_is_a_size_or_a_share(options: ServeOptions) -> None:
    assert receive_memory_budget(options.receive_memory_budget) == int(0.2 * memory_limit())
    assert receive_memory_budget("2KiB") == 2048
    assert refusal(replace(options, receive_memory_budget="much")).startswith(
        "--receive-memory-budget: 'much' is not a budget; it must be a number of bytes"
    )
    assert refusal(replace(options, receive_memory_budget="0")).startswith(
        "--receive-memory-budget: '0' leaves no memory"
    )


def test_where_the_memory_is_not_known_bodies_may_take_a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "memory_limit", lambda: 0)
    assert receive_memory_budget("20%") == 1 << 30


def test_the_wildcard_stands_alone(options: ServeOptions) -> None:
    explicit = replace(options, model_control_mode="explicit")
    check(replace(explicit, load_model=("*",)))
    assert refusal(replace(explicit, load_model=("*", "a"))) == (
        "Wildcard model name '*' must be the ONLY startup model if specified at all."
    )


def test_two_endpoints_cannot_share_an_address(options: ServeOptions) -> None:
    assert refusal(replace(options, grpc_port=8000)) == (
        "The server cannot listen to HTTP requests and GRPC requests at the same address and port 0.0.0.0:8000"
    )
    assert "GRPC requests and metrics requests" in refusal(replace(options, metrics_port=8001))


def test_sagemaker_has_a_port_of_its_own(options: ServeOptions) -> None:
    assert refusal(replace(options, allow_sagemaker=True, sagemaker_port=8000)) == (
        "The server cannot listen to HTTP requests and SageMaker requests at the same address and port 0.0.0.0:8000"
    )
    check(replace(options, sagemaker_port=8000))
    check(replace(options, allow_sagemaker=True, sagemaker_port=8000, sagemaker_address="127.0.0.1"))


def test_beside_sagemaker_ports_must_be_safe(options: ServeOptions) -> None:
    served = replace(options, allow_sagemaker=True, sagemaker_safe_port_range="8000-8001")
    assert refusal(served) == (
        "The server cannot listen to metrics requests at port 8002, allowed port range is [8000, 8001]"
    )
    check(replace(served, sagemaker_safe_port_range="8000-8002"))
    check(replace(served, allow_metrics=False))
    check(replace(served, metrics_address="127.0.0.1"))
    check(replace(served, allow_sagemaker=False))
    assert "GRPC requests at port 0" in refusal(replace(served, grpc_port=0, allow_metrics=False))


@pytest.mark.parametrize("text", ["8000", "a-b", "8001-8000", "-1-5", "1-65536", "1-2-3", "-"])
def test_a_wrong_range_of_ports_is_refused(options: ServeOptions, text: str) -> None:
    assert refusal(replace(options, sagemaker_safe_port_range=text)) == (
        f"--sagemaker-safe-port-range: '{text}' is not of the form PORT-PORT, the lower one first"
    )


def test_endpoints_that_are_off_or_elsewhere_share_nothing(options: ServeOptions) -> None:
    check(replace(options, grpc_port=8000, allow_grpc=False))
    check(replace(options, grpc_port=8000, grpc_address="127.0.0.2"))
    check(replace(options, http_port=0, grpc_port=0, metrics_port=0))


def test_metrics_are_where_http_is(options: ServeOptions) -> None:
    moved = replace(options, http_address="127.0.0.1", metrics_port=8000)
    assert refusal(moved).endswith("127.0.0.1:8000")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_needs_its_files(options: ServeOptions, tmp_path: Path, protocol: str) -> None:
    def given(options: ServeOptions, **values: Any) -> ServeOptions:
        return replace(options, **{f"{protocol}_{name}": value for name, value in values.items()})

    tls = given(options, use_ssl=True)
    assert refusal(tls) == f"--{protocol}-use-ssl needs --{protocol}-server-cert"
    pem = tmp_path / "pem"
    pem.touch()
    assert refusal(given(tls, server_cert=str(pem))) == f"--{protocol}-use-ssl needs --{protocol}-server-key"
    both = given(tls, server_cert=str(pem), server_key=str(pem))
    check(both)
    mutual = given(both, use_ssl_mutual=True)
    assert refusal(mutual) == f"--{protocol}-use-ssl-mutual needs --{protocol}-root-cert"
    missing = given(both, server_key=str(tmp_path / "none"))
    assert refusal(missing) == f"--{protocol}-server-key: '{tmp_path / 'none'}' is not a file"


def test_metrics_over_tls_need_the_certificate_of_http(options: ServeOptions) -> None:
    tls = replace(options, metrics_use_ssl=True)
    assert refusal(tls) == "--metrics-use-ssl needs --http-use-ssl, whose certificate it uses"
    assert refusal(replace(tls, http_use_ssl=True)) == "--http-use-ssl needs --http-server-cert"


def test_backend_settings_are_for_one_backend_or_for_all() -> None:
    entries = [
        "onnxruntime,threads=2",
        "default-max-batch-size=8",
        "python,shm-default-byte-size=1",
        "x=a,b=c",
    ]
    assert backend_settings(entries) == {
        "": {"default-max-batch-size": "8", "x": "a,b=c"},
        "onnxruntime": {"threads": "2"},
        "python": {"shm-default-byte-size": "1"},
    }


@pytest.mark.parametrize("entry", ["onnxruntime", "", "=1", "onnxruntime,=1", "onnxruntime,threads="])
def test_a_backend_setting_of_another_form_is_refused(entry: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        backend_settings([entry])
    assert caught.value.message == (
        f"--backend-config option format is '<backend name>,<setting>=<value>'. Got {entry}"
    )


def test_a_backend_setting_without_the_backend_before_its_comma_is_refused() -> None:
    with pytest.raises(click.UsageError) as caught:
        backend_settings([",threads=2"])
    assert caught.value.message == (
        "No backend specified. --backend-config option format is <backend name>,<setting>=<value> or "
        "<setting>=<value>. Got ,threads=2"
    )


def test_switches_of_the_metrics() -> None:
    names = ("counter_latencies", "histogram_latencies", "summary_latencies")
    assert metrics_switches([]) == dict(zip(names, (True, False, False), strict=True))
    entries = ["counter_latencies=off", "histogram_latencies=true", "summary_latencies=1"]
    assert metrics_switches([*entries, "summary_quantiles=x"]) == dict(
        zip(names, (False, True, True), strict=True)
    )


def test_quantiles_of_summaries(caplog: pytest.LogCaptureFixture) -> None:
    assert summary_quantiles(["summary_latencies=true"]) == (0.5, 0.9, 0.95, 0.99, 0.999)
    assert summary_quantiles(["summary_quantiles=0.25:0.01,0.9:0.001,0.25:0"]) == (0.25, 0.9)
    assert caplog.text == ""
    assert summary_quantiles(["summary_quantiles=x:1,0.5:0.1,2:0.1,0.9"]) == (0.5,)
    for pair in ("x:1", "2:0.1", "0.9"):
        assert f"'{pair}' is not of the form QUANTILE:ERROR" in caplog.text


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("latencies=true", "there is no 'latencies'; there are counter_latencies, histogram_latencies"),
        (
            "counter_latencies",
            "^--metrics-config option format is <setting>=<value>. Got counter_latencies$",
        ),
        ("counter_latencies=maybe", "'maybe' is no boolean; write true, on, 1, false, off or 0"),
    ],
)
def test_wrong_switches_of_the_metrics_are_refused(entry: str, line: str) -> None:
    with pytest.raises(click.UsageError, match=line):
        metrics_switches([entry])


@pytest.mark.parametrize(("front_ends", "expected"), [(1, 1 << 30), (3, 1 << 28)])
def test_front_ends_and_the_engine_share_the_memory_for_bodies(
    options: ServeOptions, front_ends: int, expected: int
) -> None:
    shared = replace(options, receive_memory_budget="1GiB", front_ends=front_ends)
    assert receive_memory_share(shared) == expected
