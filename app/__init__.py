"""The control plane: admission, dispatch, sessions, storage and the two APIs."""
