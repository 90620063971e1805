"""Continuous batching: a recurrent network in numpy writes texts for many callers at once, token by token."""
