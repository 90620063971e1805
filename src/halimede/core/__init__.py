"""The vocabulary: errors, datatypes, tensors, requests and responses, clock. No I/O, and nothing else of ours."""
