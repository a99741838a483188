"""Small benchmarks of single parts, each beside the limit that the machine sets to it."""
