"""The container contract of SageMaker over HTTP: one model behind ``/invocations``, or many behind ``/models``."""
