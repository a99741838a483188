"""One client for each system, all with the same few methods: what a worker process measures with."""
