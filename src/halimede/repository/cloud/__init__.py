"""Model repositories in buckets, mirrored on disk."""
