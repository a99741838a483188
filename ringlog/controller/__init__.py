"""The metadata of a node: what topics and partitions there are, and who serves them. Pure."""
