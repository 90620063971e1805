"""SageMaker's containers: the command `serve`, and models packed as archives."""
