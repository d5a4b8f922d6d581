"""The HTTP rim: what stands between a socket and a route.

It promises four things: one strict reading of every body, one table from refusals to statuses, an answer with a request id
and nothing secret from every layer, and limits on everything a stranger can make us hold or wait for.
"""
