"""SageMaker's walk-throughs, with plain boto3: its clients find the host by AWS_ENDPOINT_URL."""
