"""AWS's protocols over one port: which operation a request asks for, whether it may, and how the answer is written."""
