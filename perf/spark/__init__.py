"""Benchmarks of the Spark bridge: the source and the sink beside what Spark and the client could do at best."""
