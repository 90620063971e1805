"""A process for tests: appends the texts that it is sent to a file, prints `print:…`, and ends at once after `end`."""

import os
import pickle
import sys
from pathlib import Path


def main() -> None:
    """Serve until the input ends."""
    with Path(sys.argv[1]).open("a") as file:
        while True:
            try:
                texts = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            if "end" in texts:
                os._exit(3)
            for text in texts:
                if text.startswith("print:"):
                    print(text.removeprefix("print:"), flush=True)  # noqa: T201 - what the server reads
            file.write("".join(f"{text}\n" for text in texts))
            file.flush()


if __name__ == "__main__":
    main()
