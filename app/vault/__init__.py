"""Secrets at rest: the API side can only seal (`seal`), the broker's process alone can open (`unseal`)."""
