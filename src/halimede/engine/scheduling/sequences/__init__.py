"""Sequences: requests that belong together run on one instance, in order."""
