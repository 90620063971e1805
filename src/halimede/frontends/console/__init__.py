"""The console: a page that shows what the server does, and the calls that it reads."""
