"""The configuration: one pydantic class per section (see `section.py`), the whole of it in `root.py`."""
