"""The compatible wire API: Connect with its JSON codec, a translation to the same calls as the REST routes."""
