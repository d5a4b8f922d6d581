"""Walls around a run, one folder each. A provider holds no key and no database, and imports no other provider."""
