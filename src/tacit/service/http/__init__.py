"""HTTP layer of coordinator and helper: applications, group commit, driver, limits, metrics, logs.

It passes requests to a `Coordinator` or `Helper`, commits pending writes in groups, and enforces
rate and size limits. It does not implement any part of a round. It neither stores nor logs
addresses or identities of participants, and there is no access log.
"""
