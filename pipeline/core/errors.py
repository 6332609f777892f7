"""The exceptions that a user is meant to see."""

from pipeline.core.addresses import scrub

AGAIN = 85  # exit code of a program that saved its state and wants to be run again


class InputError(Exception):
    """Bad input or configuration. One line: which file, key or record, what is wrong, what to do; addresses
    without what may be secret.
    """

    def __str__(self) -> str:
        return scrub(" ".join(super().__str__().split()))  # what it quotes may have line breaks


class Passing(InputError):
    """Bad input that another try may find mended: a server that did not answer, a folder that is in use."""


class Interrupted(Exception):
    """The program ends before its work is done, mostly on a signal, and can go on from its saved state. One
    line: why, and what was saved.
    """
