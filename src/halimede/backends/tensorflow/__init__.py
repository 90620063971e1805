"""TensorFlow models."""
