"""Settings of tracing, over both protocols and as flags."""

from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.conformance.asking import get, post, rpc
from tests.conformance.case import Case, case
from tests.conformance.differences import OUT_OF_RANGE, UNKNOWN_TRACE_LEVEL, UNKNOWN_TRACE_SETTING
from tests.conformance.servers import Setting
from tests.conformance.steps import Starts

ALL = "/v2/trace/setting"
ONE = "/v2/models/add_sub/trace/setting"
BACK = dict.fromkeys(("trace_level", "trace_rate", "trace_count", "log_frequency"))

CHANGES: tuple[Any, ...] = (
    {},
    {"trace_level": ["TIMESTAMPS"]},
    {"trace_level": ["TENSORS", "TIMESTAMPS"]},
    {"trace_level": ["OFF"]},
    {"trace_level": ["OFF", "TIMESTAMPS"]},
    {"trace_level": []},
    {"trace_level": "TIMESTAMPS"},
    {"trace_level": [1]},
    {"trace_rate": "5", "trace_count": "7", "log_frequency": "3"},
    {"trace_rate": " 7"},
    {"trace_rate": "+3"},
    {"trace_rate": "0"},
    {"trace_rate": 5},
    {"trace_rate": ["5"]},
    {"trace_rate": ""},
    {"trace_rate": "abc"},
    {"trace_rate": "99999999999"},
    {"trace_rate": "99999999999999999999999"},
    {"trace_count": "-2"},
    {"trace_count": "x"},
    {"trace_count": "99999999999"},
    {"log_frequency": "x"},
    {"log_frequency": "99999999999"},
    {"trace_rate": "9", "trace_count": "x"},
    {"trace_rate": "x", "trace_level": ["OFF", "TENSORS"]},
    {"trace_file": "/tmp/x"},
    {"trace_file": None},
    {"trace_rate": "x", "trace_file": "/tmp/x"},
    {"trace_mode": "opentelemetry"},
    {"other": "5"},
    {"trace_rate": "9", "other": "5"},
    [],
    "text",
)
UNKNOWN_LEVELS: tuple[Any, ...] = ({"trace_level": ["timestamps"]}, {"trace_level": ["NONSENSE", "TENSORS"]})
WRAPPED: tuple[Any, ...] = ({"trace_rate": "-1"}, {"log_frequency": "-3"}, {"trace_rate": "5x"})


def setting(*values: str) -> pb.TraceSettingRequest.SettingValue:
    return pb.TraceSettingRequest.SettingValue(value=values)


GRPC: tuple[dict[str, tuple[str, ...]], ...] = (
    {},
    {"trace_level": ("TENSORS", "TIMESTAMPS")},
    {"trace_level": ("OFF", "TENSORS")},
    {"trace_level": ()},
    {"trace_rate": ("5",)},
    {"trace_rate": ("1", "2")},
    {"trace_rate": ("x",)},
    {"trace_rate": ("99999999999",)},
    {"log_frequency": ("1", "2")},
    {"trace_file": ("x",)},
    {"other": ("x",)},
)

FLAGS = (
    "level=TIMESTAMPS",
    "level=min",
    "level=on",
    "level=other",
    "level",
    "rate=0",
    "rate=x",
    "rate=99999999999",
    "count=x",
    "mode=other",
    "other,file=x",
    "triton",
    "triton,file=",
    "triton,log-frequency=x",
    "triton,log-frequency=5",
    "=x",
)

CASES: list[Case] = [
    case("settings", get(ALL), get(ONE), get("/v2/models/unknown/trace/setting"), alone=True),
    *(
        case(f"{path} {body!r}", post(path, body), get(ALL), get(ONE), post(path, BACK), alone=True)
        for path in (ALL, ONE)
        for body in CHANGES
    ),
    *(
        case(f"{body!r}", post(ALL, body), post(ALL, BACK), alone=True, differs=OUT_OF_RANGE)
        for body in WRAPPED
    ),
    *(
        case(f"{body!r}", post(ALL, body), post(ALL, BACK), alone=True, differs=UNKNOWN_TRACE_LEVEL)
        for body in UNKNOWN_LEVELS
    ),
    case(
        "gRPC: an unknown level",
        rpc("TraceSetting", settings={"trace_level": setting("FOO")}),
        alone=True,
        differs=UNKNOWN_TRACE_LEVEL,
    ),
    case(
        "settings of a model go before those of all",
        post(ONE, {"trace_rate": "77"}),
        post(ALL, {"trace_rate": "33", "trace_count": "5"}),
        get(ONE),
        post(ONE, {"trace_rate": None}),
        post(ALL, BACK),
        get(ONE),
        alone=True,
    ),
    *(
        case(
            f"gRPC {model} {values!r}",
            rpc("TraceSetting", model_name=model, settings={name: setting(*each) for name, each in values.items()}),
            rpc("TraceSetting", model_name=model, settings={name: setting() for name in BACK}),
            alone=True,
        )
        for model in ("", "add_sub", "unknown")
        for values in GRPC
    ),
    *(
        case(
            f"--trace-config={flag}", Starts((f"--trace-config={flag}",)), setting=Setting(models=("asked",))
        )
        for flag in FLAGS
    ),
    case(
        "--trace-config=rat=5",
        Starts(("--trace-config=rat=5",)),
        setting=Setting(models=("asked",)),
        differs=UNKNOWN_TRACE_SETTING,
    ),
]  # fmt: skip
