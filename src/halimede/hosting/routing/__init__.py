"""The data path: an invocation's way to an instance and back, byte for byte."""
