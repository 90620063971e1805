"""The container contract of Vertex AI over HTTP: a health route, and a predict route that leads to every other call."""
