"""Traces of requests: which are made, and where they go."""
