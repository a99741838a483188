"""The `ringlog` command: parse, call, print."""
