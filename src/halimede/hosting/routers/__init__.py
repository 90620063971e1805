"""Router processes, which share the host's port: they answer invocations, and the host's own process does the rest."""
