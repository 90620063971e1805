"""The host's console: a page that shows what the host does, and the calls that it reads."""
