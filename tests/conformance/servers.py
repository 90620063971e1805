"""Both servers under the same flags, each with model repositories of its own."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc

from benchmarks import rival
from benchmarks.processes import Server, halimede

MODELS = Path(__file__).parent / "models"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")
Start = Callable[..., AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Setting:
    """How both servers are started.

    Attributes:
        flags: their flags beside addresses and ports.
        models: which of the directories in `models/` they serve; all, if it is empty.
        ready: whether they become ready.
        further: further repositories, by name, which are empty at first.
        own_flags: further flags of this server.
    """

    flags: tuple[str, ...] = EXPLICIT
    models: tuple[str, ...] = ()
    ready: bool = True
    further: tuple[str, ...] = ()
    own_flags: tuple[str, ...] = ()


PLAIN = Setting()


@dataclass(slots=True)
class Subject:
    """A running server under comparison, and how another one of its kind is started."""

    name: str
    server: Server
    repository: Path
    start: "Start"
    further: Mapping[str, Path] = field(default_factory=dict)
    channel: grpc.Channel = field(init=False)

    @property
    def places(self) -> dict[str, Path]:
        """Its repositories, by what is written in answers in their place."""
        others = {f"<repository {name}>": path for name, path in self.further.items()}
        return {"<repository>": self.repository, **others}

    def __post_init__(self) -> None:
        """Open the channel of all gRPC calls."""
        limit = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.grpc_port}", options=limit)


def copy_models(names: Sequence[str], repository: Path) -> None:
    """Make a repository of the models with those names, or of all."""
    repository.mkdir(parents=True)
    for model in sorted(MODELS.iterdir()):
        if model.is_dir() and (not names or model.name in names):
            shutil.copytree(model, repository / model.name, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def both(setting: Setting, directory: Path) -> Iterator[tuple[Subject, Subject]]:
    """tritonserver and this server, ready, with their repositories below that directory.

    Raises:
        UnavailableError: there is no tritonserver for this machine.
        BenchmarkError: one of them does not start.
    """
    with ExitStack() as stack:
        subjects = []
        log = stack.enter_context((directory / "halimede.log").open("wb"))
        starts: dict[str, Start] = {
            "tritonserver": rival.tritonserver,
            "halimede": partial(halimede, log=log),
        }
        for name, start in starts.items():
            repository = directory / name / "models"
            copy_models(setting.models, repository)
            further = {other: directory / name / other for other in setting.further}
            for path in further.values():
                path.mkdir()
            flags = [flag.replace("<repository>", str(repository)) for flag in setting.flags]
            flags += [f"--model-repository={path}" for path in further.values()]
            flags += setting.own_flags if name == "halimede" else ()
            server = stack.enter_context(start(repository, arguments=flags, ready=setting.ready))
            subject = Subject(name, server, repository, start, further)
            stack.callback(subject.channel.close)
            subjects.append(subject)
        theirs, ours = subjects
        yield theirs, ours
