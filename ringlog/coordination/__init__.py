"""Consumer groups: who reads which partition, and how far each group has come. Pure: time comes in with the call."""
