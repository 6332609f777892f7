"""What names and hosts tell of texts that came from named sources, or without URLs."""

NO_HOST = ".invalid"  # the end of all hosts of rows without URLs


def source_of(identity: str) -> str:
    """Return the named source of a page's id, or of a file in lineage; "" for any other."""
    return identity.rpartition("/")[0]
