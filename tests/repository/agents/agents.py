"""Agents for tests, written to disk."""

import textwrap
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import wait_until


def write_agent(directory: Path, name: str, methods: str, head: str = "") -> Path:
    """An agent with the methods, in its place below the directory of agents."""
    place = directory / name
    place.mkdir(parents=True, exist_ok=True)
    body = textwrap.indent(textwrap.dedent(methods), "    ")
    file = place / "agent.py"
    file.write_text(f"{head}\nclass TritonRepositoryAgent:\n{body}\n")
    return file


def agents_text(*agents: tuple[str, dict[str, str]]) -> str:
    """The part of a configuration that names the agents."""
    texts = []
    for name, parameters in agents:
        pairs = " ".join(
            f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items()
        )
        texts.append(f'{{ name: "{name}" {pairs} }}')
    return f"model_repository_agents {{ agents [ {', '.join(texts)} ] }}\n"


def until_gone(pid: int) -> None:
    """Return when the process has ended; whoever has to may not have reaped it."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the process to end")
