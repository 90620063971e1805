"""Tensors in clients' shared memory: which regions are registered, and requests that use them."""
