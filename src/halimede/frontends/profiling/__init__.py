"""Where the server's own process spends its time: samples of its stacks, by the stages of a request."""
