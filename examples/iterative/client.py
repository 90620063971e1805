"""Let eight callers ask for texts at once, and hold them against the network: `python -m examples.iterative.client`."""

import argparse
import http.client
import json
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np

from examples.iterative.network import write

PROMPTS = ("Far ", "It walks ", "The other ", "One day", "The comet", "Then it ", "Who walks", "And it ")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument(
    "--weights",
    type=Path,
    default=Path("build/iterative/models/writer/1/weights.npz"),
    help="what the server's model was built with",
)
parser.add_argument("--tokens", type=int, default=60, help="characters of each text")
arguments = parser.parse_args()

texts = dict.fromkeys(PROMPTS, "")
together: Counter[int] = Counter()  # callers of a step → characters that were written in such steps
lock = threading.Lock()


def ask(prompt: str) -> None:
    """Read the characters of a text as they come."""
    connection = http.client.HTTPConnection(arguments.http, timeout=30)
    body = json.dumps({"PROMPT": prompt, "MAX_TOKENS": arguments.tokens})
    connection.request("POST", "/v2/models/writer/generate_stream", body)
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            event = json.loads(line.removeprefix(b"data: "))
            with lock:
                texts[prompt] += event["TOKEN"]
                together[event["CALLERS"]] += 1
    connection.close()


callers = [threading.Thread(target=ask, args=(prompt,)) for prompt in PROMPTS]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()

for prompt, text in texts.items():
    print(f"{prompt}|{text}".replace("\n", " "))
with np.load(arguments.weights) as file:
    weights = {name: file[name] for name in file.files if name != "characters"}
    characters = str(file["characters"])
for prompt, text in texts.items():
    if text != (itself := write(weights, characters, prompt, arguments.tokens)):
        sys.exit(f"wrong answer: after '{prompt}' the server writes '{text}', and the network '{itself}'")
written = together.total()
steps = round(sum(count / size for size, count in together.items()))
print(f"{len(texts)} texts are those of the network: {written} characters in {steps} steps")
if steps == written:
    sys.exit("no step was shared")
