"""Load on language models whose clients leave at random: is a text wrong or lost, or a slot, a sequence or memory kept?

    python -m scripts.soak_language SECONDS

Two tiny models write texts for two dozen clients, over OpenAI's API: one with OpenVINO GenAI, whose cache holds fewer
texts than are written at once, and one with transformers. Four of ten clients leave in the middle of their text, or
before it begins; one of twenty asks for more than the context holds. A text that is read to its end is the one that
the model wrote when it was alone. At the end nothing is under way, as many texts as the models have slots are written
at once, and the processes of the models have no more memory than they had after a quarter of the time. Otherwise the
exit status is 1.
"""

import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

from scripts.soak_front_ends import until, workers
from scripts.soaking import hanging, say
from tests.frameworks.openvino_genai import exported
from tests.frameworks.transformers import tiny_models
from tests.support.server import ServerProcess, start_server

CLIENTS: Final = 24
SLOTS: Final = 8
BLOCKS: Final = 12
"""Of the cache, for 32 tokens each: three texts as long as the context."""

TOKENS: Final = 60
PATIENCE: Final = 120.0
"""Seconds after which a text counts as lost."""

LEAVING: Final = 0.4
TOO_LONG: Final = 0.05
MORE_MEMORY: Final = 32 << 20
MODELS: Final = ("genai", "plain")
PROMPTS: Final = (
    "The moon walks",
    "one two three four five",
    "The planet turns the wrong way around the moon.",
    "three",
)


class Load:
    """Clients that ask until they are stopped, each in a thread.

    Attributes:
        counts: what became of their requests.
        wrong: what should not have come.
    """

    def __init__(self, server: ServerProcess, written: dict[tuple[str, str], str]) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self._server = server
        self._written = written
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed),), daemon=True)  # noqa: S311 - no secret
            for seed in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """Have what is under way answered, and ask no more: how many clients hang."""
        self._stop.set()
        return hanging(self._threads, 2 * PATIENCE)

    def _run(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            model, prompt = chance.choice(MODELS), chance.choice(PROMPTS)
            try:
                if chance.random() < TOO_LONG:
                    outcome = self._too_long(model)
                elif chance.random() < LEAVING:
                    outcome = self._leave(model, prompt, chance.randrange(20))
                else:
                    outcome = self._read(model, prompt)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._count(self.wrong, f"{type(error).__name__}: {error}"[:300])
            else:
                self._count(self.counts, outcome)

    def _count(self, where: Counter[str], what: str) -> None:
        with self._lock:
            where[what] += 1

    def _read(self, model: str, prompt: str) -> str:
        text = written(self._server, model, prompt)
        if text != self._written[model, prompt]:
            raise ValueError(f"{model} wrote {text!r} and not {self._written[model, prompt]!r}")
        return "read"

    def _leave(self, model: str, prompt: str, after: int) -> str:
        with closing(http.client.HTTPConnection(self._server.http, timeout=PATIENCE)) as connection:
            connection.request("POST", "/v1/completions", body(model, prompt, stream=True))
            if not after:
                return "left at once"
            response = connection.getresponse()
            for _ in range(2 * after):  # an event, and the empty line after it
                if not response.readline():
                    return "read by one that wanted to leave"
        return "left"

    def _too_long(self, model: str) -> str:
        with closing(http.client.HTTPConnection(self._server.http, timeout=PATIENCE)) as connection:
            connection.request("POST", "/v1/completions", body(model, "word " * tiny_models.CONTEXT))
            response = connection.getresponse()
            text = response.read().decode()
        if response.status != 400 or "context" not in text:
            raise ValueError(f"a prompt that is too long: {response.status} {text}")
        return "refused"


def body(model: str, prompt: str, tokens: int = TOKENS, *, stream: bool = False) -> bytes:
    """The body of a request for a text that is always the same."""
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens, "temperature": 0}
    return json.dumps({**asked, "stream": stream}).encode()


def written(server: ServerProcess, model: str, prompt: str, tokens: int = TOKENS) -> str:
    """The text that a model writes, from its events.

    Raises:
        ValueError: it failed.
    """
    with closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        connection.request("POST", "/v1/completions", body(model, prompt, tokens, stream=True))
        data = connection.getresponse().read()
    events = [line[6:] for line in data.splitlines() if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise ValueError(f"a text of {model} broke off: {data[-300:]!r}")
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


def make_repository(directory: Path) -> None:
    """Both models."""
    settings = {
        "genai": {
            "num_kv_blocks": str(BLOCKS),
            "KV_CACHE_PRECISION": "f32",
            "INFERENCE_PRECISION_HINT": "f32",
        },
        "plain": {},
    }
    backends = {"genai": "openvino_genai", "plain": "transformers"}
    for name, parameters in settings.items():
        version = directory / name / "1"
        version.mkdir(parents=True)
        text = f'backend: "{backends[name]}"\n'
        for key, value in {"max_num_seqs": str(SLOTS), **parameters}.items():
            text += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        (version.parent / "config.pbtxt").write_text(text)
    exported.export(directory / "genai" / "1")
    tiny_models.save("llama", directory / "plain" / "1")


def memory(server: ServerProcess) -> int:
    """Bytes that the processes of the models have to themselves."""
    total = 0
    for pid in workers(server):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    return total << 10


def waiting(server: ServerProcess) -> float:
    """Requests that wait, of all models."""
    lines = server.get("/metrics", server.metrics)[1].decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("nv_inference_pending_request_count{")
    )


def at_once(server: ServerProcess, expected: dict[tuple[str, str], str]) -> list[str]:
    """Have as many texts written at once as there are slots: what was wrong."""
    problems = []
    asked = [(model, PROMPTS[number % len(PROMPTS)]) for model in MODELS for number in range(SLOTS)]
    with ThreadPoolExecutor(len(asked)) as threads:
        texts = threads.map(lambda each: written(server, *each), asked)
        for each, text in zip(asked, texts, strict=True):
            if text != expected[each]:
                problems.append(f"at the end, {each[0]} wrote {text!r} and not {expected[each]!r}")
    return problems


def run(seconds: float) -> list[str]:
    """Load the models for so long: what was wrong."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        make_repository(Path(scratch))
        with start_server(Path(scratch), "--allow-openai=true") as server:
            expected = {
                (model, prompt): written(server, model, prompt) for model in MODELS for prompt in PROMPTS
            }
            load = Load(server, expected)
            time.sleep(seconds / 4)
            before = memory(server)
            end = time.monotonic() + seconds * 3 / 4
            while time.monotonic() < end and server.process.poll() is None:
                time.sleep(min(20.0, max(0.1, end - time.monotonic())))
                say(f"{dict(load.counts)}, memory {memory(server) >> 20} MiB")
            hanging = load.stop()
            if hanging:
                problems.append(f"{hanging} clients hang")
            problems += [f"{count} times: {what}" for what, count in load.wrong.items()]
            if not until(lambda: waiting(server) == 0):
                problems.append(f"{waiting(server)} requests wait without a client")
            problems += at_once(server, expected)
            grown = memory(server) - before
            say(f"{dict(load.counts)}, {sum(load.wrong.values())} wrong, {grown / (1 << 20):.1f} MiB more")
            if grown > MORE_MEMORY:
                problems.append(f"the models have {grown >> 20} MiB more")
            if server.stop() != 0:
                problems.append("the server did not stop as it should")
    return problems


def main() -> None:
    """Run for as many seconds as the argument says."""
    problems = run(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    say("\n".join(problems) or "nothing was lost")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
