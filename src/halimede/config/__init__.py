"""config.pbtxt: schema, parsing, auto-completion, normalisation, validation."""
