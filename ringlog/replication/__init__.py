"""Leader and followers of one partition: what is fetched, cut, counted and committed. Pure."""
