"""The command `halimede host`, and those that talk to a host."""
