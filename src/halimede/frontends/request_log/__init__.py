"""The log of single requests: the access log and the log of slow requests."""
