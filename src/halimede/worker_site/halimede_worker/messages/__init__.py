"""Messages between the server and a worker, and the shared memory that large tensors of them lie in."""
