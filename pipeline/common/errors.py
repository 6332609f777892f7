"""The two exceptions that a user is meant to see."""

from pipeline.common.addresses import scrub

AGAIN = 85  # exit code of a program that saved its state and wants to be run again


class InputError(Exception):
    """Bad input or configuration. One line: which file, key or record, what is wrong, what to do; addresses
    without what may be secret.
    """

    def __str__(self) -> str:
        return scrub(" ".join(super().__str__().split()))  # what it quotes may have line breaks


class Interrupted(Exception):
    """A signal asked the program to end, and it saved its state. One line: what was saved."""
