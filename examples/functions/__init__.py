"""Functions that are served as models."""
