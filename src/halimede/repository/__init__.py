"""What lies on disk: models of the repositories, their versions, labels, overrides, and whether they changed."""
