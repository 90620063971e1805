"""Monitoring of data: captured invocations compared with a baseline, on schedules."""
