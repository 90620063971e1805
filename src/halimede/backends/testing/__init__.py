"""Triton's backends for tests, without a framework."""
