"""The kinds of pages of the generated web: one module per family, each a phrase book and the layout of its pages."""
