"""A small language model that learns from this project's pages, and a chat with it in the terminal."""
