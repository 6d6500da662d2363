"""Transcript formats: how the messages of a format map to the contract's, and back to themselves."""
