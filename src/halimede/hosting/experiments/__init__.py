"""Inference experiments: shadow tests that are deployed, ended and cleared away by a schedule."""
