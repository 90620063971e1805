"""Models that are given one by one, as files, directories or functions, and become a model repository."""
