"""DALI pipelines."""
