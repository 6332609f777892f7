"""The demo's world: a small generated web, its problems, and the truth about both."""
