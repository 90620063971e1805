"""Language models: how fast texts come, beside what writes them without a server."""
