"""Where instances run: what places, watches and ends their processes."""
