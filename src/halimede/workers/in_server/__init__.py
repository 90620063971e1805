"""Python models that run in the interpreter of the server: what takes the place of a process and its sockets."""
