"""What a model asks of the server: to run other models, to load them, to log, to count."""
