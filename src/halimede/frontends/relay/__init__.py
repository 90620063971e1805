"""Front-end processes: they own the connections of clients, and relay calls to the engine's process."""
