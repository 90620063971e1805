"""Protocols on sockets."""
