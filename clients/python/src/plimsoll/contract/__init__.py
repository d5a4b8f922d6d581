"""The words shared by service, providers and clients: tiers, refusals, requests, results, records, workers.

Everything here is a value or a pure function. The modules `tiers`, `refusals`, `requests`, `results`,
`record`, `bounds`, `worker` and `frames` import the standard library only; `rest` and `codec` add pydantic.
"""
