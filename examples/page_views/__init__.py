"""Page views, counted by page and time: a streaming job, what feeds it, and a check of what it says."""
