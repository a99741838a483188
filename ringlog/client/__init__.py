"""The client library: producer, consumer and admin over one connection to a node."""
