"""The container wall: one fresh container a run, under whichever runtime docker has been told to use (runc or gVisor)."""
