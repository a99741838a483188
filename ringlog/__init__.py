"""ringlog: a durable, partitioned commit log for Python teams and Spark pipelines."""

__version__ = "0.1.0"
