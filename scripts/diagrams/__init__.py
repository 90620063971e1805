"""The diagrams of the pages: `python -m scripts.diagrams` writes them to `docs/diagrams`."""
