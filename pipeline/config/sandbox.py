"""How programs that a model writes are run: never part of a fingerprint, so a change reruns nothing."""

from pipeline.core.section import Section, key


class SandboxSection(Section):
    """Programs that a model writes, in evaluation and in RL."""

    weak: bool = key(
        False,
        "true: run them even where the system refuses namespaces; seccomp alone then keeps them off files, "
        "network and other processes, and they cannot open files. Where there are namespaces they are used",
    )
