"""Sequences: what requests must say, what models are told, slots, and statistics."""

import numpy as np

from tests.conformance.asking import get, grpc_infer, infer, loaded, message, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_stream import stream
from tests.conformance.cases.statistics import counted
from tests.conformance.differences import IDS_OF_ITERATIVE, TEXT_IDS
from tests.conformance.sources import IMPORTS
from tests.conformance.steps import Http, Settled, Step, Together

IO = """
backend: "python" max_batch_size: 4
input [{ name: "X" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [1] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def control(kind: str, name: str, members: str) -> str:
    """A control input."""
    return f'{{ name: "{name}" control [{{ kind: CONTROL_SEQUENCE_{kind} {members} }}] }}'


FLAGS = (
    control("START", "S", "int32_false_true: [0, 1]"),
    control("READY", "R", "bool_false_true: [false, true]"),
    control("END", "E", "fp32_false_true: [-1, 2]"),
)


def config(
    strategy: str = "direct { }", datatype: str = "UINT64", members: str = "", further: str = ""
) -> str:
    """A model that is told all that there is to be told."""
    controls = ", ".join((*FLAGS, control("CORRID", "ID", f"data_type: TYPE_{datatype}")))
    return f"{IO} sequence_batching {{ {strategy} control_input [ {controls} ] {members} }} {further}"


OLDEST = "oldest { max_candidate_sequences: 2 }"

ITERATIVE = f"{IO} sequence_batching {{ iterative_sequence: true oldest {{ max_candidate_sequences: 2 }} }}"

SEEN = (
    IMPORTS
    + """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            seen = {}
            for each in request.inputs():
                value = each.as_numpy()
                value = value[0, 0].decode() if value.dtype == np.object_ else value[0, 0].item()
                seen[each.name()] = value
            wait = seen["X"] / 1000 if seen["R"] else 0
            seen.update(id=request.correlation_id(), flags=request.flags(), rows=len(requests))
            time.sleep(wait)
            text = np.array([[json.dumps(seen, sort_keys=True).encode()]], np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
        return responses
"""
)
"""Answers with the tensors and flags that it sees, after as many milliseconds as its input says."""

STEPS = (
    IMPORTS
    + """
class TritonPythonModel:
    def initialize(self, args):
        self.steps = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            key = request.correlation_id()
            steps = self.steps.setdefault(key, [])
            steps.append(request.flags())
            if len(steps) < pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0, 0]:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
            else:
                text = np.array([[json.dumps([key, self.steps.pop(key)]).encode()]], np.object_)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
        return responses
"""
)
"""Takes as many steps as its input says."""


def ask(model: str, sequence: int | str, flags: str = "", value: int = 0, **parameters: int) -> Http:
    """A request of a sequence over HTTP, with the flags S and E."""
    said = {
        "sequence_id": sequence,
        "sequence_start": "S" in flags,
        "sequence_end": "E" in flags,
        **parameters,
    }
    return infer(model, tensor("X", "INT32", [[value]]), parameters=said)


def over_grpc(model: str, sequence: int | str, flags: str = "") -> Step:
    """The same over gRPC."""
    return grpc_infer(
        model,
        ("X", np.zeros((1, 1), np.int32)),
        sequence_id=sequence,
        sequence_start="S" in flags,
        sequence_end="E" in flags,
    )


def one(name: str, configuration: str, *steps: Step) -> tuple[Step, ...]:
    """Steps with a model that answers with what it sees."""
    return loaded(name, configuration, SEEN, *steps)


CASES: list[Case] = [
    *(
        case(
            f"what requests must say, {strategy.split()[0]}",
            *one(
                f"seq_say_{number}",
                config(strategy),
                infer(f"seq_say_{number}", tensor("X", "INT32", [[0]]), id="r"),
                ask(f"seq_say_{number}", 0, "S"),
                ask(f"seq_say_{number}", "", "S"),
                ask(f"seq_say_{number}", 5),
                ask(f"seq_say_{number}", 5, "E"),
                infer(
                    f"seq_say_{number}",
                    tensor("X", "INT32", [[0], [0]]),
                    parameters={"sequence_id": 5, "sequence_start": True},
                ),
                over_grpc(f"seq_say_{number}", 5),
                over_grpc(f"seq_say_{number}", 0, "S"),
            ),
        )
        for number, strategy in enumerate(("direct { }", OLDEST))
    ),
    *(
        case(
            f"from start to end, {strategy.split()[0]}",
            *one(
                f"seq_whole_{number}",
                config(strategy),
                ask(f"seq_whole_{number}", 5, "S"),
                ask(f"seq_whole_{number}", 5),
                over_grpc(f"seq_whole_{number}", 5),
                ask(f"seq_whole_{number}", 5, "E"),
                ask(f"seq_whole_{number}", 5),
                ask(f"seq_whole_{number}", 5, "SE"),
                ask(f"seq_whole_{number}", 2**40 + 7, "SE"),
            ),
        )
        for number, strategy in enumerate(("direct { }", OLDEST))
    ),
    *(
        case(
            f"ids as {datatype}",
            *one(
                f"seq_id_{datatype.lower()}",
                config(datatype=datatype),
                ask(f"seq_id_{datatype.lower()}", 7, "SE"),
                ask(f"seq_id_{datatype.lower()}", 2**32 + 7, "SE"),
                ask(f"seq_id_{datatype.lower()}", 2**31, "SE"),
            ),
        )
        for datatype in ("UINT64", "INT64", "UINT32", "INT32")
    ),
    case(
        "ids as STRING",
        *one(
            "seq_id_string",
            config(datatype="STRING"),
            ask("seq_id_string", "seven", "SE"),
            ask("seq_id_string", 7, "SE"),
            over_grpc("seq_id_string", "sieben", "S"),
            ask("seq_id_string", "sieben", "E"),
        ),
        differs=TEXT_IDS,
    ),
    case(
        "a second start",
        *one(
            "seq_twice",
            config(),
            ask("seq_twice", 5, "S"),
            ask("seq_twice", 5, "S"),
            ask("seq_twice", 5, "E"),
        ),
    ),
    case(
        "a silent sequence",
        *one(
            "seq_silent",
            config(members="max_sequence_idle_microseconds: 100000"),
            ask("seq_silent", 5, "S"),
            ask("seq_silent", 6, "S", 700),
            ask("seq_silent", 5),
        ),
    ),
    case(
        "waiting for a slot for too long",
        *one(
            "seq_backlog",
            config("oldest { max_candidate_sequences: 1 }"),
            ask("seq_backlog", 1, "S"),
            ask("seq_backlog", 2, "S", timeout=100_000),
            ask("seq_backlog", 2),
            ask("seq_backlog", 1, "E"),
        ),
    ),
    case(
        "statistics with null requests",
        *counted(
            60,
            ask("counted_60", 1, "S"),
            ask("counted_60", 2, "S"),
            ask("counted_60", 3, "S"),
            ask("counted_60", 3),
            ask("counted_60", 4),
            ask("counted_60", 1, "E"),
            text=config(),
            source=SEEN,
        ),
    ),
    case(
        "two sequences in a batch",
        *one(
            "seq_both",
            config(),
            ask("seq_both", 1, "S"),
            ask("seq_both", 2, "S"),
            Together((ask("seq_both", 1, value=600), ask("seq_both", 2, "E"), ask("seq_both", 3, "SE"))),
            Settled(get("/v2/models/seq_both/stats")),
        ),
    ),
    case(
        "over a stream",
        *one(
            "seq_stream",
            config(OLDEST),
            stream(
                *(
                    message(
                        "seq_stream",
                        ("X", np.zeros((1, 1), np.int32)),
                        id=str(step),
                        sequence_id=9,
                        sequence_start=step == 0,
                        sequence_end=step == 3,
                    )
                    for step in range(5)
                )
            ),
        ),
    ),
    case(
        "iterative",
        *loaded(
            "seq_steps",
            ITERATIVE,
            STEPS,
            *(infer("seq_steps", tensor("X", "INT32", [[steps]])) for steps in (1, 2, 5)),
            infer("seq_steps", tensor("X", "INT32", [[1], [1]])),
        ),
    ),
    case(
        "iterative, with an id of the client's",
        *loaded("seq_own_id", ITERATIVE, STEPS, ask("seq_own_id", 77, "E", 2)),
        differs=IDS_OF_ITERATIVE,
    ),
]
