"""Models for a SageMaker container, and what the platform does with them."""
