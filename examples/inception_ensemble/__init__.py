"""A walk-through: pictures to labels, by DALI and TensorFlow."""
