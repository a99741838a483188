"""Programs to start from, each with its own check that it does what it says."""
