"""What is measured, as CloudWatch aggregates it, and the logs of instances."""
