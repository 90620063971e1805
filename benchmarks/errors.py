"""What ends a workload, but not those after it."""


class BenchmarkError(Exception):
    """A workload cannot be measured; the text says why, with what the failing program wrote."""
