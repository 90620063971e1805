"""What runs in the worker process of a Python model. Needs Python 3.8 or later and numpy, and nothing else.

The directory above is what the server puts on the path of a worker, whatever interpreter it has; nothing else of
the server is there. Hence the relative imports, and the annotations of an older Python.
"""
