"""Connections among the launchers of a job's nodes: when one ends, all know how.

Node 0 listens; the others connect to it, and it repeats what one tells to the rest. A connection that breaks
without a word means that a launcher, or its node, is gone.
"""

import contextlib
import json
import socket
import time
from dataclasses import dataclass

from pipeline.common.errors import InputError

KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}  # a dead node: 30 s

START_SECONDS = 300.0


@dataclass(frozen=True)
class End:
    """How a program ended first: exit code, 0 for all ranks done, and the cause in one line."""

    code: int
    cause: str


def _accepted(number: int, port: int) -> list[socket.socket]:
    """Connections from `number` nodes."""
    found: list[socket.socket] = []
    with socket.create_server(("", port), backlog=number) as server:
        server.settimeout(START_SECONDS)
        while len(found) < number:
            try:
                found.append(server.accept()[0])
            except TimeoutError:
                raise InputError(f"{number - len(found)} of {number} other nodes did not start") from None
    return found


def _connected(address: str, port: int) -> socket.socket:
    """A connection to node 0, which may start later."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return socket.create_connection((address, port), timeout=10)
        except OSError as error:
            if time.monotonic() > deadline:
                raise InputError(
                    f"no connection to the job's first node, {address}:{port}: {error}"
                ) from error
            time.sleep(0.2)


class Links:
    """This node's connections; without other nodes there are none. Node 0 is at `address`.

    Raises InputError if the other nodes do not come within five minutes.
    """

    def __init__(self, nodes: int, node: int, address: str, port: int) -> None:
        self.heard: set[socket.socket] = set()  # peers that said how they ended
        if nodes == 1:
            self.peers = []
        elif node == 0:
            self.peers = _accepted(nodes - 1, port)
        else:
            self.peers = [_connected(address, port)]
        for peer in self.peers:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE.items():
                peer.setsockopt(socket.IPPROTO_TCP, option, value)
            peer.setblocking(False)

    def look(self) -> End | None:
        """What another node says about a failure, if any; the end of a node that ended well is none."""
        for peer in self.peers:
            if peer in self.heard:
                continue
            try:
                line = peer.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                line = b""
            self.heard.add(peer)
            end = End(*json.loads(line)) if line else End(1, "another node of the job is gone without a word")
            if end.code:
                return end
        return None

    def tell(self, end: End) -> None:
        """Say how this node ended first."""
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.sendall(json.dumps([end.code, end.cause]).encode() + b"\n")

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` until the other nodes have ended too: all then give the same exit code."""
        deadline = time.monotonic() + seconds
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
                while (left := deadline - time.monotonic()) > 0:
                    peer.settimeout(left)
                    if not peer.recv(1 << 16):
                        break
