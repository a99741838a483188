"""Puts advice into effect, so that it can be taken back."""
