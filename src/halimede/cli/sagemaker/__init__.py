"""SageMaker's containers: the command `sagemaker-serve`, and models packed as archives."""
