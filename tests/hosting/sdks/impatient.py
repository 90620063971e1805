"""Run a script in which no sleep takes longer than a second: `impatient.py SCRIPT [ARGUMENT ...]`.

The SageMaker SDK sleeps half a minute before it looks at an endpoint for the first time, and the host needs a second.
"""

import runpy
import sys
import time

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(min(float(seconds), 1.0))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
