"""Processes that host instances: their channels and shared memory, starting, watching and ending them."""
