"""The command `halimede check`."""
