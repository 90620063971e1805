"""Tensors: their datatypes and bytes, and what other libraries take them as."""
