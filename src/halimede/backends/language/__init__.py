"""Language models: what the backends that generate text share."""
