"""Silos that learn one policy together: the silo's agent, the coordinator, and engine adapters.

`agent` holds a silo's records, keys and noise and decides what leaves; `coordinator` drives the
`Experiment`; an `Exchange` carries bytes between them (`exchange` in one process, `flare` on NVIDIA
FLARE). `federation` has the signed terms. `exported` reads a policy and needs NumPy only.
"""
