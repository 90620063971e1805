"""Topics in the shape of SNS: what is published there goes to a log, and to the HTTP endpoints that subscribed."""
