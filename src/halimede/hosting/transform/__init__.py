"""Batch transform: jobs that send the objects of a bucket through a model."""
