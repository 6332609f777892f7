"""The kinds of pages of the generated web: phrase books and the layouts of their pages."""
