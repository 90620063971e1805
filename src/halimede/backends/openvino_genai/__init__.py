"""Backend `openvino_genai`: language models on the continuous batching of OpenVINO GenAI."""
