"""A host whose clock is ahead: `python -m tests.support.host_ahead SECONDS [FLAG ...]`."""

import sys
import time

if __name__ == "__main__":
    ahead = float(sys.argv[1])
    now = time.time
    time.time = lambda: now() + ahead

    from halimede.cli.main import main  # only now, as it takes the clock along

    main(["host", *sys.argv[2:]])
