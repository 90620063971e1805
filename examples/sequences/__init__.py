"""Sequences: a Python model that adds up what the requests of a sequence bring, and clients of it."""
