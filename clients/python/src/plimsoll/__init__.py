"""Plimsoll's light library: run untrusted code in a sandbox and check how strong the wall was."""
