"""The site of all pages: `python -m scripts.site`."""
