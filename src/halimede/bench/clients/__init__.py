"""Connections to servers that do as little as possible for each request."""
