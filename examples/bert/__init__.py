"""BERT in two formats, and five copies of it for a multi-model endpoint."""
