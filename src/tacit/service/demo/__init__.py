"""A live experiment on one machine: two servers, a few thousand simulated people, a report.

Everything between the parties is real: HTTP on loopback, keys, seals, noise from the operating
system's source, the device that ships. Only the people are made up, and both servers run on one
machine: it shows the protocol, not the separation of trust.
"""
