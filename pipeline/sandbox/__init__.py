"""Runs Python that a model wrote, with no effect outside: `jail` holds the layers, `pool` is for use."""
