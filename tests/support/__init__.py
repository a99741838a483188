"""What several test suites share. Production code never imports it."""
