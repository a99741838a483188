"""`ringlog bench`: load on a node, and what it answered."""
