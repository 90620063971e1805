"""The host: SageMaker's hosting service on one's own machines. It reaches the servers that it starts only over HTTP."""
