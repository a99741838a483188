"""Record batches: their format, codecs, checks and the partitioner."""
