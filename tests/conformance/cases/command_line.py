"""Flags with which a server starts, or does not."""

from tests.conformance.case import Case, case
from tests.conformance.servers import Setting
from tests.conformance.steps import Starts

FLAGS = (
    "--model-config-name=",
    "--model-config-name=other",
    "--backend-config=nonsense",
    "--backend-config=python",
    "--backend-config=,a=b",
    "--backend-config=python,a=b",
    "--http-port=x",
    "--unknown-flag=1",
    "--model-control-mode=other",
    "--strict-readiness=maybe",
    "--strict-readiness=off",
    "--load-model=x",
    "--log-format=other",
    "--log-format=ISO8601",
    "--log-verbose=x",
    "--log-verbose=2",
    "--metrics-config=nonsense",
    "--metrics-config=summary_latencies=true",
    "--rate-limit=other",
    "--cache-config=local",
    "--cache-config=size=1000",
    "--cache-config=local,size",
    "--cache-config=,size=1000",
    "--response-cache-byte-size=x",
    "--http-restricted-api=nonsense:a=b",
    "--http-restricted-api=health",
    "--http-restricted-api=health:a=b",
    "--grpc-restricted-protocol=nonsense:a=b",
    "--grpc-infer-response-compression-level=x",
    "--grpc-infer-response-compression-level=high",
    "--allow-metrics=false",
    "--id=other",
    "--disable-auto-complete-config",
    "--strict-model-config=true",
)

CASES: list[Case] = [case(flag, Starts((flag,)), setting=Setting(models=("asked",))) for flag in FLAGS]
