"""The one exception that a user is meant to see."""


class InputError(Exception):
    """Bad input or configuration. One line: which file, key or record, what is wrong, what to do."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())  # what it quotes may have line breaks
