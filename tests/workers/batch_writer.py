"""A process for tests: appends the texts that it is sent to a file, and ends at once if one is `end`."""

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
            file.write("".join(f"{text}\n" for text in texts))
            file.flush()


if __name__ == "__main__":
    main()
