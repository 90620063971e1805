"""`halimede infer`: one request to a model of a running server, and its answer as a table."""
