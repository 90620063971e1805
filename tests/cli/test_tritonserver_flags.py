"""Each flag of tritonserver is served, accepted with the reason why it has no effect, or refused by its name."""

from pathlib import Path

import pytest

from halimede.cli.flags import check_flags
from halimede.cli.options import SETTINGS
from halimede.cli.settings import Setting

# What `tritonserver --help` of version 2.51 lists but for --help, and four flags that later versions have
# fmt: off
TRITONSERVER = [
    "allow-client-shm", "allow-cpu-metrics", "allow-gpu-metrics", "allow-grpc", "allow-http",
    "allow-metrics", "allow-sagemaker", "allow-vertex-ai", "backend-config", "backend-directory",
    "buffer-manager-thread-count", "cache-config", "cache-directory", "cuda-memory-pool-byte-size",
    "cuda-virtual-address-size", "disable-auto-complete-config", "enable-peer-access", "exit-on-error",
    "exit-timeout-secs", "grpc-address", "grpc-header-forward-pattern", "grpc-http2-max-ping-strikes",
    "grpc-http2-max-pings-without-data", "grpc-http2-min-recv-ping-interval-without-data",
    "grpc-infer-allocation-pool-size", "grpc-infer-response-compression-level", "grpc-infer-thread-count",
    "grpc-keepalive-permit-without-calls", "grpc-keepalive-time", "grpc-keepalive-timeout",
    "grpc-max-connection-age", "grpc-max-connection-age-grace", "grpc-max-response-pool-size", "grpc-port",
    "grpc-restricted-protocol", "grpc-root-cert", "grpc-server-cert", "grpc-server-key", "grpc-use-ssl",
    "grpc-use-ssl-mutual", "host-policy", "http-address", "http-header-forward-pattern",
    "http-max-input-size", "http-port", "http-restricted-api", "http-thread-count", "id", "load-model",
    "log-error", "log-file", "log-format", "log-info", "log-verbose", "log-warning", "metrics-address",
    "metrics-config", "metrics-interval-ms", "metrics-port", "min-supported-compute-capability",
    "model-config-name", "model-control-mode", "model-load-gpu-limit", "model-load-retry-count",
    "model-load-thread-count", "model-namespacing", "model-repository", "model-store",
    "pinned-memory-pool-byte-size", "rate-limit", "rate-limit-resource", "repoagent-directory",
    "repository-poll-secs", "response-cache-byte-size", "reuse-grpc-port", "reuse-http-port",
    "sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count", "strict-model-config",
    "strict-readiness", "trace-config", "trace-count", "trace-file", "trace-level", "trace-log-frequency",
    "trace-rate", "vertex-ai-default-model", "vertex-ai-port", "vertex-ai-thread-count",
]
# fmt: on

PAGE = (Path(__file__).parents[2] / "docs" / "flags.md").read_text()


def setting_of(flag: str) -> Setting:
    (found,) = (each for each in SETTINGS if flag in (each.name, *each.aliases))
    return found


@pytest.mark.parametrize("flag", TRITONSERVER)
def test_a_flag_of_tritonserver_is_known_and_on_the_page(flag: str) -> None:
    setting = setting_of(flag)
    assert setting.help
    (row,) = (line for line in PAGE.splitlines() if f"`--{flag}` " in line.partition(" | ")[0] + " ")
    assert row.endswith(f"| {setting.description.replace('|', chr(92) + '|')} |")


@pytest.mark.parametrize("flag", [flag for flag in TRITONSERVER if setting_of(flag).reason])
def test_a_flag_without_effect_says_why(flag: str) -> None:
    setting = setting_of(flag)
    assert f"No effect: {setting.reason}." in PAGE
    assert check_flags({setting.attribute: object()}) == [f"--{flag} has no effect here: {setting.reason}"]
