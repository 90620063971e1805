"""Servers under other flags."""

from tests.conformance.asking import config, get, grpc_infer, index, infer, load, message, post, rpc, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_infer import X as GRPC_X
from tests.conformance.differences import RESTRICTED_KEY
from tests.conformance.servers import EXPLICIT, Setting
from tests.conformance.steps import Bytes, Rpc, Step, Until

X = tensor("X", "INT32", [1])
RESTRICTED = Setting(
    flags=(
        *EXPLICIT,
        "--http-restricted-api=model-config,statistics:X-Secret=open",
        "--http-restricted-api=metadata:other=key",
        "--grpc-restricted-protocol=model-config,statistics:X-Secret=open",
        "--grpc-restricted-protocol=inference:infer-key=key",
    ),
    models=("asked",),
)
FORWARDING = Setting(
    flags=(
        *EXPLICIT,
        "--http-header-forward-pattern=(?-i)MY_HEADER.*|x-.*",
        "--grpc-header-forward-pattern=my_.*",
    ),
    models=("asked",),
)
STRICT = Setting(
    flags=("--model-control-mode=explicit", "--disable-auto-complete-config"), models=("asked", "add_sub")
)
MISSING = Setting(
    flags=("--model-repository=<repository>/missing", "--exit-on-error=false"), models=("asked",), ready=False
)
NAMED = Setting(flags=(*EXPLICIT, "--id=my server", "--strict-readiness=false"), models=("asked",))
SOME = Setting(
    flags=(
        "--model-control-mode=explicit",
        "--load-model=asked",
        "--load-model=missing",
        "--exit-on-error=false",
    ),
    models=("asked", "add_sub"),
    ready=False,
)


def of(setting: Setting, **steps: Step) -> list[Case]:
    """A case of each step."""
    return [case(name.replace("_", " "), step, setting=setting) for name, step in steps.items()]


CASES: list[Case] = [
    *of(
        RESTRICTED,
        restricted_without_a_key=config("asked"),
        restricted_with_a_key=get("/v2/models/asked/config", {"X-Secret": "open"}),
        restricted_with_a_wrong_key=get("/v2/models/asked/config", {"X-Secret": "shut"}),
        restricted_with_a_key_in_lower_case=get("/v2/models/asked/config", {"x-secret": "open"}),
        restricted_statistics=get("/v2/models/stats"),
        restricted_by_another_method=post("/v2/models/stats"),
        restricted_metadata=get("/v2"),
        restricted_metadata_with_a_key=get("/v2/models/asked", {"other": "key"}),
        not_restricted=infer("asked", X),
        restricted_over_gRPC=rpc("ModelConfig", name="asked"),
        restricted_over_gRPC_with_a_wrong_key=rpc(
            "ModelConfig", name="asked", metadata={"triton-grpc-protocol-x-secret": "shut"}
        ),
        restricted_inference_over_gRPC=grpc_infer("asked", GRPC_X),
        restricted_inference_over_gRPC_with_a_key=Rpc(
            "ModelInfer", message("asked", GRPC_X), (("triton-grpc-protocol-infer-key", "key"),)
        ),
        not_restricted_over_gRPC=rpc("ServerLive"),
    ),
    *of(
        FORWARDING,
        forwarded_headers=infer("asked", X, headers={"MY_HEADER": "a", "MY_HEADER_2": "b", "Other": "c"}),
        headers_in_lower_case=infer("asked", X, headers={"my_header": "a", "x-y": "b", "X-Z": "c"}),
        headers_with_spaces=infer("asked", X, headers={"x-a": "  a  b"}),
        a_header_twice=post(
            "/v2/models/asked/infer",
            b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}',
            {"x-a": "1", "X-A": "2"},
        ),
        a_repeated_header=Bytes(
            b"POST /v2/models/asked/infer HTTP/1.1\r\nHost: localhost\r\nx-a: 1\r\nx-a: 2\r\nContent-Length: 67\r\n\r\n"
            b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}'
        ),
        a_header_in_two_ways=post(
            "/v2/models/asked/infer",
            b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}',
            {"x-a": "1", "x-b": "2", "x-A": "3"},
        ),
        headers_and_parameters=infer("asked", X, headers={"x-a": "1"}, parameters={"x-a": "2", "b": 1}),
        forwarded_metadata=Rpc("ModelInfer", message("asked", GRPC_X), (("my_key", "value"), ("other", "x"))),
        forwarded_metadata_with_spaces=Rpc("ModelInfer", message("asked", GRPC_X), (("my_key", " value "),)),
    ),
    case(
        "a header with a space at its end",
        infer("asked", X, headers={"x-a": "a "}),
        setting=FORWARDING,
    ),
    case(
        "restricted over gRPC with a key",
        rpc("ModelConfig", name="asked", metadata={"triton-grpc-protocol-x-secret": "open"}),
        differs=RESTRICTED_KEY,
        setting=RESTRICTED,
    ),
    case("without completion", load("asked"), infer("asked", X), config("asked"), setting=STRICT),
    *of(
        MISSING,
        missing_repository_metadata=get("/v2/models/asked"),
        missing_repository_live=get("/v2/health/live"),
        missing_repository_ready=get("/v2/health/ready"),
        missing_repository_gRPC_ready=rpc("ServerReady"),
        missing_repository_infer=infer("asked", X),
        missing_repository_index=post("/v2/repository/index"),
        missing_repository_gRPC_live=rpc("ServerLive"),
    ),
    case(
        "an id of the server",
        get("/v2"),
        rpc("ServerMetadata"),
        ignored=(r"version$", "extensions"),
        setting=NAMED,
    ),
    case(
        "a model that is missing at the start",
        Until(get("/v2/models/asked/ready"), lambda answer: answer["status"] == 200),
        get("/v2/health/ready"),
        get("/v2/health/live"),
        index("asked", "add_sub", "missing"),
        infer("asked", X),
        get("/v2/models/missing"),
        setting=SOME,
    ),
]
