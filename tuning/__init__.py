"""Measures a machine, advises settings for it, checks what ringlog needs there, and plans clusters."""
