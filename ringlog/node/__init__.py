"""A node: the processes, the memory that joins them, and the supervisor that keeps them alive."""
