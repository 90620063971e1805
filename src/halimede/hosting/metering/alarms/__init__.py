"""CloudWatch's alarms: what they watch, when they are evaluated, and what is done when their state changes."""
