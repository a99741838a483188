"""What a cluster needs for a load. Pure."""
