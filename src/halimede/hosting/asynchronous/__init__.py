"""Asynchronous inference: requests wait in a durable queue, and their results are objects."""
