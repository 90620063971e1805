"""Attacks on a server with little memory, while an ordinary client sends requests to it."""
