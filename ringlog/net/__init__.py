"""The wire: framing and sessions (pure), and the ZeroMQ sockets at both of its ends."""
