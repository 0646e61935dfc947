"""Demonstration on one machine: two servers, a few thousand simulated participants, a report.

HTTP over loopback, keys, encryption, noise from the operating system's randomness and the client
library are real. The participants are simulated, and both servers run on one machine. It therefore
shows the protocol, not the separation of trust.
"""
