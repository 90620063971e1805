"""Batch transform jobs."""
