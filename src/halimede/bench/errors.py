"""What can go wrong in a measurement."""


class BenchError(Exception):
    """The measurement cannot be made; the text says why and what would help."""
