"""The figures of a running server in a terminal: `halimede top`."""
