"""`/v1/responses`: its requests converted to those of chat, and its replies."""
