"""Data capture: what was asked of variants and answered, kept as SageMaker keeps it."""
