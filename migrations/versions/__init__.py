"""One file a revision, named for its number."""
