"""REST routes, one file per resource: read, call one service, answer. What they say is fixed by `plimsoll.contract.rest`."""
