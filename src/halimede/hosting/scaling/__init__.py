"""Autoscaling: the number of instances of variants follows their load, or the clock."""
