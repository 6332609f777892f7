"""Where the ranks of a training find each other."""

import os
from datetime import timedelta

from torch import distributed as dist

from pipeline.core.launch.launcher import LISTENING


def join_store(timeout: timedelta) -> dist.Store:
    """Return torch's store at rank 0, or at torchrun's agent; a process started alone is a group of one."""
    if "RANK" not in os.environ:
        # In memory, because a free port may be taken before it is used. Nobody uses the address.
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        os.environ |= alone | {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
        return dist.HashStore()
    ranks = int(os.environ["WORLD_SIZE"])
    serves = os.environ["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    listening = int(os.environ[LISTENING]) if serves and LISTENING in os.environ else None
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(*place, ranks, serves, timeout, master_listen_fd=listening)
