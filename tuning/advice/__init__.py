"""From facts to settings, each with its reason. Pure."""
