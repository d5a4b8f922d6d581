"""Admission, choice of worker, reservation, start, and the truthful classification of every ending."""
