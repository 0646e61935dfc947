"""Sum protocols P = (R, S, A): what a device sends, what the intermediary hands on, what the
analyzer reads.
"""
