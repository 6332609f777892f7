"""Talk to a model of a run, on the terminal or as a page."""
