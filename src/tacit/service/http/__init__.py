"""The parties over HTTP: applications, group commit, driver, link to the helper, limits, metrics.

Nothing here knows how a round works: it brings requests to a `Coordinator` or `Helper`, commits
what waits in groups, and keeps strangers within limits. Neither addresses nor names of people are
stored or logged, and there is no access log.
"""
