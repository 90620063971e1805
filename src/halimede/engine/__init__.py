"""What is loaded and one request's way: validation, queues, batching, instances, statistics."""
