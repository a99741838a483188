"""Other systems that ringlog is compared with: fetched on demand, started on loopback, stopped by their ids."""
