"""Python functions and classes as models: what their annotations say, and the Python model that calls them."""
