"""Ranks and sharded weights."""
