"""Halimede's speed and memory beside the physical limits: `python -m benchmarks`, or `make bench`."""
