"""What is wanted, and making it so: models, endpoint configurations and endpoints, kept in SQLite and reconciled."""
