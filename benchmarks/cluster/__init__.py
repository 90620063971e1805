"""The host with a thousand instances and a hundred thousand models, on virtual time; `python -m benchmarks.cluster`."""
