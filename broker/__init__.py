"""The broker: the one place where credentials are opened, minted and attached, in a process of its own.

Guest code never holds a credential, an API address or a network (docs/threat-model.md). Its call comes as one JSON message;
`policy` decides, `upstream` sends what we built ourselves, `scrub` looks for the credential in the answer, `trace` counts.
"""
