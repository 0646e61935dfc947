"""Protocols for private sums: what a device sends, what an intermediary opens, what a server may conclude."""
