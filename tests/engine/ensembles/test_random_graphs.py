"""Any ensemble gives what a simple evaluation of it gives, in whatever order its models answer."""

from collections import Counter
from dataclasses import dataclass
from zlib import crc32

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse, Respond
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.plan import EnsemblePlan
from tests.engine.ensembles.fakes import Answer, Bench, FakeModel, model, ports, step, tensor, values

Values = dict[str, float]
Path = tuple[int, ...]
"""Which response of each decoupled step before something stems from."""


@dataclass(frozen=True)
class Node:
    """A step: input → tensor, output → tensor."""

    name: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    decoupled: bool

    def responses(self, inputs: Values) -> list[Values]:
        """What its model makes of its inputs; an output may be left out."""
        text = f"{self.name} {sorted(inputs.items())}"
        count = crc32(text.encode()) % 4 if self.decoupled else 1
        made = []
        for index in range(count):
            numbers = {name: crc32(f"{text} {index} {name}".encode()) % 100_000 for name in self.outputs}
            made.append({name: float(number) for name, number in numbers.items() if number % 7})
        # of a response without any output a decoupled model could not say whether it is one
        return [each for each in made if each] if self.decoupled else made


Answers = list[tuple[InferResponse | None, bool]]


@dataclass(frozen=True)
class Graph:
    """An ensemble of inputs X0 and X1."""

    nodes: list[Node]
    outputs: list[str]
    inflight: int

    def config(self) -> ModelConfig:
        steps = [step(node.name, _pairs(node.inputs), _pairs(node.outputs)) for node in reversed(self.nodes)]
        config = ModelConfig()
        text_format.Parse(
            f'name: "e" platform: "ensemble" {ports("input", "X0 X1?")} {ports("output", " ".join(self.outputs))} '
            f"ensemble_scheduling {{ {' '.join(steps)} max_inflight_requests: {self.inflight} }}",
            config,
        )
        return config

    def evaluate(self, inputs: Values, wanted: list[str]) -> list[Values] | None:
        """The responses, in order; None if tensors are joined that have nothing in common."""
        origin: dict[str, tuple[str, ...]] = {"X0": (), "X1": ()}
        runs: dict[tuple[str, ...], list[Path]] = {(): [()]}
        tensors: dict[tuple[str, Path], float] = {(name, ()): value for name, value in inputs.items()}

        def gather(reads: dict[str, str], path: Path) -> Values:
            found = {port: tensors.get((name, path[: len(origin[name])])) for port, name in reads.items()}
            return {port: value for port, value in found.items() if value is not None}

        for node in self.nodes:
            joined = _join([origin[name] for name in node.inputs.values()])
            if joined is None:
                return None
            mine = (*joined, node.name) if node.decoupled else joined
            if node.decoupled:
                runs[mine] = []
            origin |= dict.fromkeys(node.outputs.values(), mine)
            for path in runs[joined]:
                for index, response in enumerate(node.responses(gather(node.inputs, path))):
                    inner = (*path, index) if node.decoupled else path
                    if node.decoupled:
                        runs[mine].append(inner)
                    for port, value in response.items():
                        tensors[node.outputs[port], inner] = value
        if _join([origin[name] for name in self.outputs]) is None:
            return None
        joined = _join([origin[name] for name in wanted])
        assert joined is not None
        return [gather({name: name for name in wanted}, path) for path in sorted(runs[joined])]


def _pairs(ports: dict[str, str]) -> str:
    return " ".join(f"{port}={name}" for port, name in ports.items())


def _join(origins: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    longest = max(origins, key=len)
    return longest if all(longest[: len(each)] == each for each in origins) else None


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    tensors = ["X0", "X1"]
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 6))):
        reads = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3))
        writes = {f"OUT{port}": f"t{index}_{port}" for port in range(draw(st.integers(1, 2)))}
        decoupled = draw(st.sampled_from([False, False, True]))
        nodes.append(Node(f"m{index}", {f"IN{i}": name for i, name in enumerate(reads)}, writes, decoupled))
        tensors += writes.values()
    outputs = draw(st.lists(st.sampled_from(tensors[2:]), min_size=1, max_size=3, unique=True))
    return Graph(nodes, outputs, draw(st.integers(0, 2)))


class Player:
    """Answers requests to the models of a graph, one response at a time."""

    def __init__(self, graph: Graph, draw: st.DataObject, obedient: bool) -> None:
        self.delivered: Counter[int] = Counter()
        self.kept: list[Tensor] = []
        self._draw = draw
        self._obedient = obedient
        self._open: list[tuple[InferRequest, FakeModel, list[Values], bool]] = []
        self.fakes = [FakeModel(self._config(node), self._taker(node)) for node in graph.nodes]

    def _config(self, node: Node) -> ModelConfig:
        optional = " ".join(f"{name}?" for name in node.inputs)
        return model(node.name, optional, " ".join(node.outputs), decoupled=node.decoupled)

    def _taker(self, node: Node) -> Answer:
        def take(request: InferRequest) -> None:
            for each in request.inputs.values():
                self.delivered[id(each)] += 1
            given = {name: values(each)[0] for name, each in request.inputs.items()}
            responses = node.responses(given)
            if not node.decoupled and self._draw.draw(st.booleans()):
                self._send(request, responses[0], final=True)
            else:
                fake = next(fake for fake in self.fakes if fake.name == node.name)
                self._open.append((request, fake, responses, node.decoupled))

        return take

    def _send(self, request: InferRequest, numbers: Values, *, final: bool) -> None:
        outputs = {name: tensor(number) for name, number in numbers.items() if name in request.outputs}
        self.kept += outputs.values()
        request.respond(InferResponse(outputs), final)

    def play(self) -> None:
        """Answer until nothing is left that may be answered."""
        while True:
            able = [
                index
                for index, (request, _, _, decoupled) in enumerate(self._open)
                if not (decoupled and self._obedient and request.congested)
            ]
            if not able:
                return
            index = self._draw.draw(st.sampled_from(able))
            request, _, responses, decoupled = self._open[index]
            if not decoupled:
                del self._open[index]
                self._send(request, responses[0], final=True)
            elif responses:
                self._send(request, responses.pop(0), final=False)
            else:
                del self._open[index]
                request.respond(None, True)


def into(answers: Answers) -> Respond:
    """Collects responses, each with whether it is the final one."""
    return lambda response, final: answers.append((response, final))


@settings(max_examples=100, deadline=None)
@given(graphs(), st.data(), st.booleans(), st.lists(st.booleans(), min_size=1, max_size=3))
def test_an_ensemble_gives_what_its_graph_says(
    graph: Graph, draw: st.DataObject, obedient: bool, requests: list[bool]
) -> None:
    some = draw.draw(st.lists(st.sampled_from(graph.outputs), unique=True))
    wanted = [name for name in graph.outputs if not some or name in some]
    player = Player(graph, draw, obedient)
    if graph.evaluate({"X0": 1.0}, wanted) is None:
        configs = {fake.name: fake.config for fake in player.fakes}
        with pytest.raises(InvalidArgumentError, match="inputs originated from different decoupled models"):
            EnsemblePlan.from_config(graph.config(), lambda name, version: configs[name])
        return
    bench = Bench(graph.config(), *player.fakes)
    try:
        streams: list[tuple[list[Values] | None, Answers]] = []
        for number, both in enumerate(requests):
            inputs = {"X0": 1.0 + 2 * number} | ({"X1": 2.0 + 2 * number} if both else {})
            answers: Answers = []
            streams.append((graph.evaluate(inputs, wanted), answers))
            bench.infer(
                {name: tensor(value) for name, value in inputs.items()},
                outputs=some,
                respond=into(answers),
            )
        player.play()
        for expected, answers in streams:
            assert [final for _, final in answers] == [False] * (len(answers) - 1) + [True]
            responses = [each for each, _ in answers if each is not None]
            assert all(each.error is None for each in responses)
            assert expected == [
                {name: values(each)[0] for name, each in response.outputs.items()} for response in responses
            ]
            for response in responses:
                for each in response.outputs.values():
                    player.delivered[id(each)] += 1
        assert all(each.shared for each in player.kept if player.delivered[id(each)] > 1)
        assert bench.ensemble.inflight == 0
    finally:
        bench.close()
