"""How long things take in the simulation: measured, unless it says that it was assumed. Times are in seconds.

Measured with `python -m benchmarks.cluster.measure` on two cores of a virtual machine (AMD EPYC), medians: ResNet-50
with random weights, served by `halimede serve`.
"""

START_S = 0.87
"""From the start of a server's process until it answers."""

LOAD_S = 0.224
"""Loading the model."""

UNLOAD_S = 0.018
"""Unloading it."""

REQUEST_S = 0.0294
"""One image, one request at a time."""

EXTRACT_S = 0.783
"""Extracting its archive."""

ARCHIVE_BYTES = 95_000_000
"""The archive."""

MODEL_BYTES = 150_000_000
"""Memory of the model while it is loaded."""

FETCH_S = 0.38
"""Assumed: fetching the archive from S3, at 250 MB/s."""

NODE_BYTES_PER_S = 1_250_000_000.0
"""Assumed: what all fetches of a node get together (10 Gbit/s)."""

DESCRIBE_S = 0.02
"""Assumed: a HEAD request to S3."""

PING_S = 0.001
"""Assumed: an answer to a ping."""

CONNECT_S = 2.0
"""So long the host waits for a connection to an instance before it tries another (`routing.invocations`)."""
