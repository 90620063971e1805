"""Loads and unloads."""

import base64
import json
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.conformance.asking import (
    config,
    get,
    gone,
    index,
    infer,
    load,
    post,
    python_model,
    rpc,
    tensor,
    unload,
)
from tests.conformance.case import Case, case
from tests.conformance.differences import (
    DECODED_NAME,
    LOAD_MISTAKE,
    NO_BASE64,
    NO_NAME_OF_A_MODEL,
    READY_AFTER_AN_UNLOAD,
    UNREADABLE_UNLOAD,
)
from tests.conformance.servers import Setting
from tests.conformance.sources import CONFIG, IDENTITY, IMPORTS
from tests.conformance.steps import Files, Step

X = tensor("X", "INT32", [1, 2])
OTHER = IDENTITY.replace('"OUT", array', '"OUT", array * 10')
JSON: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
}
COUNTING = (
    IMPORTS
    + """
class TritonPythonModel:
    def initialize(self, args):
        with open(args["model_repository"] + "/started", "a") as file:
            file.write("x")
        self.count = args["model_repository"] + "/started"

    def execute(self, requests):
        started = np.array([len(open(self.count).read())], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", started)]) for _ in requests]
"""
)


def overridden(changes: Any, **files: bytes) -> dict[str, Any]:
    """The body of a load with a configuration, and files, instead of those of the repository."""
    text = changes if isinstance(changes, str) else json.dumps(JSON | changes)
    content = {f"file:{path}": base64.b64encode(data).decode() for path, data in files.items()}
    return {"parameters": {"config": text, **content}}


def steps(name: str, *then: Step, source: str = IDENTITY, text: str = CONFIG) -> tuple[Step, ...]:
    """A model that is written, some steps, and its unload."""
    return (python_model(name, text, source), *then, unload(name), gone(name), index(name))


def filed(path: str, content: Any = None, **more: Any) -> dict[str, Any]:
    """A load with one file."""
    data = base64.b64encode(IDENTITY.encode()).decode() if content is None else content
    return {"parameters": {"config": json.dumps(JSON | more), f"file:{path}": data}}


OVERRIDES: dict[str, Any] = {
    "none": {},
    "no parameters": {"parameters": {}},
    "parameters 3": {"parameters": 3},
    "an unknown parameter": {"parameters": {"x": "y"}},
    "parameter 3": {"parameters": {"config": 3}},
    "an array": [],
    "text": "nonsense",
    "an empty configuration": {"parameters": {"config": ""}},
    "{}": {"parameters": {"config": "{}"}},
    "no JSON": {"parameters": {"config": "nonsense"}},
    "a list as configuration": {"parameters": {"config": "[]"}},
    "a configuration": overridden({}),
    "a batch size": overridden({"max_batch_size": 4}),
    "an unknown field": overridden({"unknown": 1}),
    "a wrong type": overridden({"max_batch_size": "x"}),
    "a number as text": overridden({"max_batch_size": "4"}),
    "instance_group as an object": overridden({"instance_group": {"count": 2}}),
    "instance_group as a list": overridden({"instance_group": [{"count": 2}]}),
    "camel case": overridden({"maxBatchSize": 4}),
    "a lower-case enum": overridden({"instance_group": [{"kind": "kind_cpu"}]}),
    "an enum as a number": overridden({"instance_group": [{"kind": 2}]}),
    "an unknown enum": overridden({"instance_group": [{"kind": "KIND_X"}]}),
    "another name": overridden({"name": "another"}),
    "null": overridden({"max_batch_size": None}),
    "another backend": overridden({"backend": "unknown"}),
    "no backend": overridden({"backend": ""}),
    "an invalid batch size": overridden({"max_batch_size": -1}),
    "version policy": overridden({"version_policy": {"specific": {"versions": [9]}}}),
    "parameters": overridden({"parameters": {"a": {"string_value": "b"}}}),
    "dynamic batching": overridden(
        {"max_batch_size": 2, "dynamic_batching": {"max_queue_delay_microseconds": 5}}
    ),
    "a file": filed("1/model.py"),
    "a file of another version": filed("5/model.py"),
    "two versions": {"parameters": filed("1/model.py")["parameters"] | filed("2/model.py")["parameters"]},
    "a file with a leading slash": filed("/1/model.py"),
    "a file outside": filed("../x/model.py"),
    "a file far outside": filed("1/../../x"),
    "a file without path": filed(""),
    "a file that is no base64": filed("1/model.py", "***"),
    "a file that is no text": filed("1/model.py", 3),
    "a file without configuration": {"parameters": {"file:1/model.py": "eA=="}},
    "an empty file": filed("1/model.py", ""),
    "a file with a name too long": filed("1/" + "x" * 300),
    "a file without version": filed("model.py"),
}

MEANT = {"parameters 3": LOAD_MISTAKE, "text": LOAD_MISTAKE, "a file that is no base64": NO_BASE64}


def grpc_load(model: str, **parameters: pb.ModelRepositoryParameter) -> Step:
    """A load over gRPC."""
    return rpc("RepositoryModelLoad", model_name=model, parameters=parameters)


P = pb.ModelRepositoryParameter
GRPC: dict[str, dict[str, pb.ModelRepositoryParameter]] = {
    "nothing": {},
    "a configuration": {"config": P(string_param=json.dumps(JSON))},
    "a configuration of bytes": {"config": P(bytes_param=b"{}")},
    "a configuration that is a number": {"config": P(int64_param=3)},
    "a file": {"config": P(string_param=json.dumps(JSON)), "file:1/model.py": P(bytes_param=OTHER.encode())},
    "a file of text": {"config": P(string_param=json.dumps(JSON)), "file:1/model.py": P(string_param="x")},
    "an unknown parameter": {"other": P(string_param="x")},
    "a file without configuration": {"file:1/model.py": P(bytes_param=b"x")},
    "unload_dependents": {"unload_dependents": P(bool_param=True)},
}
UNLOADS: dict[str, Any] = {
    "an empty object": {},
    "unload_dependents": {"parameters": {"unload_dependents": True}},
    "unload_dependents of text": {"parameters": {"unload_dependents": "true"}},
    "unload_dependents 1": {"parameters": {"unload_dependents": 1}},
    "an unknown parameter": {"parameters": {"other": 1}},
    "parameters 3": {"parameters": 3},
    "text": "nonsense",
    "a list": [],
}
NAMES = ("unknown", "...", "..", ".", "%20", "a%2Fb", "a..b", "add_sub%00", "-", "add_sub/1")
NONE = Setting(flags=(), models=("add_sub",))
POLL = Setting(flags=("--model-control-mode=poll", "--repository-poll-secs=3600"), models=("add_sub",))

UNLOADED_NAMES = {"a%2Fb": DECODED_NAME, "add_sub%00": DECODED_NAME}
LOADED_NAMES = {**UNLOADED_NAMES, **dict.fromkeys(("...", "..", "%20", "a..b"), NO_NAME_OF_A_MODEL)}

CASES: list[Case] = [
    case(
        "load, reload, unload",
        *steps(
            "control_1",
            load("control_1"),
            index("control_1"),
            load("control_1"),
            infer("control_1", X),
            unload("control_1"),
            gone("control_1"),
            index("control_1"),
            infer("control_1", X),
            get("/v2/models/control_1/ready"),
            load("control_1"),
            index("control_1"),
        ),
    ),
    case(
        "a changed file",
        *steps(
            "control_2",
            load("control_2"),
            infer("control_2", X),
            Files("control_2", {"1/model.py": OTHER}),
            load("control_2"),
            infer("control_2", X),
        ),
    ),
    case(
        "a new version",
        *steps(
            "control_3",
            load("control_3"),
            Files("control_3", {"2/model.py": OTHER}),
            load("control_3"),
            infer("control_3", X),
            index("control_3"),
            infer("control_3/versions/1", X),
        ),
    ),
    case(
        "the latest version removed",
        *steps(
            "control_4",
            Files("control_4", {"2/model.py": OTHER}),
            load("control_4"),
            Files("control_4", {"2": None}),
            load("control_4"),
            infer("control_4", X),
            index("control_4"),
        ),
    ),
    case(
        "a reload that fails",
        *steps(
            "control_5",
            load("control_5"),
            Files("control_5", {"1/model.py": "raise ValueError('broken')\n"}),
            load("control_5"),
            infer("control_5", X),
            index("control_5"),
        ),
    ),
    case(
        "a configuration that becomes invalid",
        *steps(
            "control_6",
            load("control_6"),
            Files("control_6", {"config.pbtxt": CONFIG + "max_batch_size: -1"}),
            load("control_6"),
            infer("control_6", X),
            index("control_6"),
        ),
    ),
    case(
        "a failed load, then a good one",
        *steps(
            "control_7",
            Files("control_7", {"1/model.py": "raise ValueError('broken')\n"}),
            load("control_7"),
            index("control_7"),
            infer("control_7", X),
            Files("control_7", {"1/model.py": IDENTITY}),
            load("control_7"),
            index("control_7"),
            infer("control_7", X),
        ),
    ),
    case(
        "a failed load, then an unload",
        *steps(
            "control_8",
            Files("control_8", {"1/model.py": "raise ValueError('broken')\n"}),
            load("control_8"),
            unload("control_8"),
            gone("control_8"),
            index("control_8"),
            get("/v2/health/ready"),
        ),
        differs=READY_AFTER_AN_UNLOAD,
        alone=True,
    ),
    case(
        "one more instance",
        *steps(
            "control_9",
            load("control_9"),
            infer("control_9", X),
            Files("control_9", {"config.pbtxt": CONFIG + "instance_group [{ count: 2 kind: KIND_CPU }]"}),
            load("control_9"),
            infer("control_9", X),
            config("control_9"),
            source=COUNTING,
        ),
    ),
    case(
        "one instance less",
        *steps(
            "control_10",
            load("control_10"),
            infer("control_10", X),
            Files("control_10", {"config.pbtxt": CONFIG + "instance_group [{ count: 1 kind: KIND_CPU }]"}),
            load("control_10"),
            infer("control_10", X),
            config("control_10"),
            source=COUNTING,
            text=CONFIG + "instance_group [{ count: 2 kind: KIND_CPU }]",
        ),
    ),
    case(
        "a model that is removed",
        *steps(
            "control_11",
            load("control_11"),
            Files("control_11", {"config.pbtxt": None, "1": None}),
            load("control_11"),
            index("control_11"),
            infer("control_11", X),
        ),
    ),
    case(
        "a model whose directory is removed",
        *steps(
            "control_12",
            load("control_12"),
            Files("control_12", {"": None}),
            load("control_12"),
            infer("control_12", X),
        ),
    ),
    case(
        "override, plain load, infer",
        *steps(
            "control_13",
            load("control_13", overridden({"max_batch_size": 3})),
            config("control_13"),
            load("control_13"),
            config("control_13"),
        ),
    ),
    case(
        "plain load, override, plain load",
        *steps(
            "control_14",
            load("control_14"),
            load("control_14", overridden({"max_batch_size": 3})),
            config("control_14"),
            index("control_14"),
            load("control_14"),
            config("control_14"),
            index("control_14"),
        ),
    ),
    case(
        "override with files, then a plain load",
        *steps(
            "control_15",
            load("control_15"),
            load("control_15", filed("2/model.py", base64.b64encode(OTHER.encode()).decode())),
            index("control_15"),
            infer("control_15", X),
            load("control_15"),
            index("control_15"),
            infer("control_15", X),
        ),
    ),
    case(
        "the same override twice",
        *steps(
            "control_16",
            load("control_16", filed("1/model.py")),
            load("control_16", filed("1/model.py")),
            infer("control_16", X),
        ),
    ),
    case(
        "override of a model that no repository has",
        load("control_17", filed("1/model.py")),
        infer("control_17", X),
        index("control_17"),
        config("control_17"),
        load("control_17"),
        unload("control_17"),
        gone("control_17"),
        index("control_17"),
    ),
    case(
        "override that fails, then infer",
        *steps(
            "control_18",
            load("control_18"),
            load("control_18", overridden({"max_batch_size": -1})),
            index("control_18"),
            infer("control_18", X),
        ),
    ),
    *(
        case(
            f"override: {name}",
            *steps(
                f"override_{number}",
                load(f"override_{number}", body),
                index(f"override_{number}"),
                config(f"override_{number}"),
                infer(f"override_{number}", X),
            ),
            differs=MEANT.get(name),
        )
        for number, (name, body) in enumerate(OVERRIDES.items())
    ),
    *(
        case(
            f"gRPC load: {name}",
            *steps(
                f"grpc_load_{number}",
                grpc_load(f"grpc_load_{number}", **parameters),
                index(f"grpc_load_{number}"),
                infer(f"grpc_load_{number}", X),
            ),
        )
        for number, (name, parameters) in enumerate(GRPC.items())
    ),
    *(
        case(
            f"unload: {name}",
            *steps(
                f"unload_{number}",
                load(f"unload_{number}"),
                unload(f"unload_{number}", body),
                gone(f"unload_{number}"),
            ),
            differs=None if number in (0, 1, 4, 7) else UNREADABLE_UNLOAD,
        )
        for number, (name, body) in enumerate(UNLOADS.items())
    ),
    case(
        "gRPC unload with an unknown parameter",
        *steps(
            "grpc_unload_1",
            load("grpc_unload_1"),
            rpc("RepositoryModelUnload", model_name="grpc_unload_1", parameters={"other": P(int64_param=1)}),
            gone("grpc_unload_1"),
        ),
    ),
    case(
        "gRPC unload with unload_dependents of text",
        *steps(
            "grpc_unload_2",
            load("grpc_unload_2"),
            rpc(
                "RepositoryModelUnload",
                model_name="grpc_unload_2",
                parameters={"unload_dependents": P(string_param="x")},
            ),
            gone("grpc_unload_2"),
        ),
    ),
    *(case(f"load of {name!r}", load(name), differs=LOADED_NAMES.get(name)) for name in NAMES),
    *(
        case(f"unload of {name!r}", unload(name), differs=UNLOADED_NAMES.get(name))
        for name in NAMES
        if name != "add_sub/1"
    ),
    *(
        case(
            f"gRPC load of {name!r}", rpc("RepositoryModelLoad", model_name=name), differs=NO_NAME_OF_A_MODEL
        )
        for name in ("", " ", "...", "a/b", "../models/add_sub")
    ),
    case("load in a repository", post("/v2/repository/other/models/add_sub/load")),
    case("unload in a repository", post("/v2/repository/other/models/add_sub/unload")),
    case("GET of a load", get("/v2/repository/models/add_sub/load")),
    case(
        "load where none is allowed",
        load("add_sub"),
        unload("add_sub"),
        rpc("RepositoryModelLoad", model_name="add_sub"),
        index("add_sub"),
        setting=NONE,
    ),
    case("load of an unknown model where none is allowed", load("unknown"), setting=NONE),
    case("load while polling", load("add_sub"), unload("add_sub"), setting=POLL),
]
