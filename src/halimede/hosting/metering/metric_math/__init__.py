"""Metric math: expressions of CloudWatch's GetMetricData, such as ``errors / invocations * 100``."""
