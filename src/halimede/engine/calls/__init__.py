"""What models ask of the server."""
