"""RoBERTa in ONNX Runtime, with the parameters for memory and graph."""
