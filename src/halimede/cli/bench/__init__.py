"""`halimede bench`."""
