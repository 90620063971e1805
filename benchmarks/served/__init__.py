"""Python models that both servers run; the files are copied into the repositories as they are."""
