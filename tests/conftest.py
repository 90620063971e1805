"""Settings of all property tests: an example may take as long as a busy machine needs for it."""

from hypothesis import settings

settings.register_profile("any-machine", settings(), deadline=None)
settings.load_profile("any-machine")
