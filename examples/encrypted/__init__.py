"""Models that lie encrypted in the repository: a repository agent that decrypts them, and a program that encrypts."""
