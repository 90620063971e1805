"""Tools that a model may call: what requests say of them, and the calls in the text that a model writes."""
