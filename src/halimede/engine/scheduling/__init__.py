"""When a request runs, and on which instance."""
