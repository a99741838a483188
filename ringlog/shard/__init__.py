"""A shard: owns partitions alone, takes requests from rings, and answers when the disk has spoken."""
