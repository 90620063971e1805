"""The rate limiter: which instances may run at once, by what they need of resources that they share."""
