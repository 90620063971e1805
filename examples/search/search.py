"""Search the project's pages by meaning: `python examples/search/search.py QUESTION`.

A running server computes the embeddings of all sections of docs/*.md, and of the question. The sections with the most
similar embeddings are printed. The index is kept in a file, and made anew when a page or the model has changed.
"""

import argparse
import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 32  # texts a request
Vectors = NDArray[np.float32]


def sections(directory: Path) -> Iterator[tuple[str, str]]:
    """Where each section of the pages is, such as `limits.md#memory`, and its title and text."""
    for page in sorted(directory.glob("*.md")):
        body = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)  # without code and its output
        for part in re.split(r"^(?=#+ )", body, flags=re.M):
            title, _, text = part.partition("\n")
            if text.strip():
                title = title.strip("# ")
                anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                yield f"{page.name}#{anchor}", f"{title}\n{text.strip()}"


def embed(server: str, model: str, texts: Sequence[str]) -> Vectors:
    """The embeddings of the texts, one a row, by OpenAI's API."""
    vectors = []
    for first in range(0, len(texts), AT_ONCE):
        question = {
            "model": model,
            "input": list(texts[first : first + AT_ONCE]),
            "encoding_format": "base64",
        }
        request = urllib.request.Request(
            f"http://{server}/v1/embeddings",
            json.dumps(question).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            data = json.load(reply)["data"]
        vectors += [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in data]
    return np.array(vectors)


def index(file: Path, server: str, model: str, texts: Sequence[str]) -> Vectors:
    """The embeddings of the sections: those of the file, or new ones if they are of other texts or another model."""
    digest = hashlib.sha256("\0".join((model, *texts)).encode()).hexdigest()
    if file.exists():
        with np.load(file) as kept:
            if kept["digest"] == digest:
                vectors: Vectors = kept["vectors"]
                return vectors
    vectors = embed(server, model, texts)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, digest=digest, vectors=vectors)
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("question")
    parser.add_argument("--server", default="localhost:8000", help="where it listens for HTTP")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs")
    parser.add_argument("--index", type=Path, default=ROOT / "build" / "search" / "index.npz")
    parser.add_argument("--count", type=int, default=5, help="how many sections to print")
    arguments = parser.parse_args()
    places, texts = zip(*sections(arguments.pages), strict=True)
    try:
        vectors = index(arguments.index, arguments.server, arguments.model, texts)
        (question,) = embed(arguments.server, arguments.model, [arguments.question])
    except urllib.error.HTTPError as error:
        raise SystemExit(f"the server answers {error.code}: {error.read().decode()}") from None
    except OSError as error:
        raise SystemExit(f"no server at {arguments.server}: {error}") from None
    scores = vectors @ question
    for best in np.argsort(-scores)[: arguments.count]:
        title = texts[best].partition("\n")[0]
        print(f"{scores[best]:.3f}  {places[best]}  {title}")


if __name__ == "__main__":
    main()
