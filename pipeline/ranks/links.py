"""Connections among the launchers of a job's nodes: when one ends, all know how.

Node 0 listens; the others connect to it, and it repeats what one tells to the rest. A connection that breaks
without a word means that a launcher, or its node, is gone.

To meet, node 0 writes its ports and a secret of this job to a file that only its user may read, in a folder
that all nodes share. Who connects says which node it is, and both sides prove that they know the secret
without telling it; everybody else is dropped, whatever they send. The connections of ranks (torch's store,
gloo, NCCL) know no secret: what they say between nodes belongs in a network of the cluster's own.
"""

import contextlib
import errno
import hmac
import json
import os
import random
import re
import secrets
import select
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.errors import InputError

KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}  # a dead node: 30 s
PORTS = range(20000, 32768)  # below those that the kernel gives to connections
START_SECONDS = 300.0
CALL_SECONDS = 10.0
CALL = re.compile(rb"(\d{1,6}) ([0-9a-f]{64}) ([0-9a-f]{64})\n")  # node, its challenge, its proof
MOST_CALLERS = 100  # connections that have not proved anything yet; after that the oldest goes


@dataclass(frozen=True)
class End:
    """How a program ended first: exit code, 0 for all ranks done, and the cause in one line."""

    code: int
    cause: str


@dataclass(frozen=True)
class Meeting:
    """The ports at which node 0 serves launchers and ranks, and what nobody outside the job knows."""

    port: int
    ranks_port: int
    secret: str

    def prove(self, *words: object) -> bytes:
        """Show that this side knows the secret: 64 letters and digits for words that the other side chose."""
        return hmac.digest(self.secret.encode(), json.dumps(words).encode(), "sha256").hex().encode()

    def write(self, path: Path) -> None:
        """Write the file at which nodes meet; only this user may read it."""
        with atomic_write(path, secret=True) as partial:
            partial.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Meeting":
        """Read that file. Raises OSError, ValueError or TypeError unless it is whole and of this user."""
        with path.open() as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                raise PermissionError(f"{path} belongs to another user")
            return cls(**json.load(file))


def _serve() -> socket.socket:
    """Listen at a free port of `PORTS`."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        try:
            return socket.create_server(("", port), backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise InputError(f"no port from {PORTS[0]} to {PORTS[-1]} is free on this node")


class _Caller:
    """A connection to node 0 whose other end has not proved yet that it is of the job."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.said = connection, b""
        self.challenge = secrets.token_hex(32)
        connection.setblocking(False)
        connection.sendall(f"{self.challenge}\n".encode())

    def node(self, nodes: int, meeting: Meeting) -> int | None:
        """Hear which node it is; None if it has more to say. Raises OSError for a stranger."""
        part = self.connection.recv(200)
        self.said += part
        call = CALL.fullmatch(self.said)
        if call is None and part and b"\n" not in self.said and len(self.said) < 200:
            return None
        node, challenge, proof = (call[1], call[2].decode(), call[3]) if call else (b"0", "", b"")
        wanted = meeting.prove("node", int(node), self.challenge, challenge)
        if not (0 < int(node) < nodes and hmac.compare_digest(proof, wanted)):
            raise ConnectionError("a stranger")
        self.connection.sendall(meeting.prove("first", challenge, self.challenge) + b"\n")
        return int(node)


def _accepted(server: socket.socket, nodes: int, meeting: Meeting) -> dict[int, socket.socket]:
    """Return connections from all other nodes, by number."""
    found: dict[int, socket.socket] = {}
    callers: dict[socket.socket, _Caller] = {}
    deadline = time.monotonic() + START_SECONDS
    while len(found) < nodes - 1:
        ready, _, _ = select.select([server, *callers], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            missing = ", ".join(str(node) for node in range(1, nodes) if node not in found)
            raise InputError(f"of the job's {nodes} nodes these did not start in five minutes: {missing}")
        for connection in ready:
            try:
                if connection is server:
                    connection = server.accept()[0]
                    callers[connection] = _Caller(connection)
                elif (node := callers[connection].node(nodes, meeting)) is not None:
                    found[node] = callers.pop(connection).connection
            except OSError:
                callers.pop(connection, None)
                connection.close()
        while len(callers) > MOST_CALLERS:
            callers.pop(next(iter(callers))).connection.close()
    for connection in callers:
        connection.close()
    return found


def _line(connection: socket.socket) -> bytes:
    """Return the 64 characters of a line that node 0 says."""
    line, deadline = b"", time.monotonic() + CALL_SECONDS
    while len(line) < 65:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (part := connection.recv(65 - len(line))):
            raise ConnectionError("it hung up")
        line += part
    return line[:64]


def _called(node: int, address: str, meeting: Meeting) -> socket.socket:
    """Return a connection to node 0. Raises OSError if nobody listens there, or somebody else."""
    connection = socket.create_connection((address, meeting.port), timeout=CALL_SECONDS)
    try:
        theirs, own = _line(connection).decode("ascii", "replace"), secrets.token_hex(32)
        proof = meeting.prove("node", node, theirs, own).decode()
        connection.sendall(f"{node} {own} {proof}\n".encode())
        if not hmac.compare_digest(_line(connection), meeting.prove("first", own, theirs)):
            raise ConnectionError("it does not know this job's secret")
    except OSError:
        connection.close()
        raise
    return connection


def _connected(node: int, address: str, path: Path) -> tuple[Meeting, socket.socket]:
    """Where the nodes meet, and a connection to node 0, which may start later."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            meeting = Meeting.read(path)  # again each time: an earlier run of this job may have left one
            return meeting, _called(node, address, meeting)
        except (OSError, ValueError, TypeError) as error:
            if time.monotonic() > deadline:
                message = f"no connection to the job's first node, {address}, in five minutes: {error}"
                raise InputError(f"{message}; do all nodes share {path.parent}?") from error
            time.sleep(0.2)


class Links:
    """This node's connections; without other nodes there are none. Node 0 is at `address`; `path` is the file
    at which the nodes meet. `server` listens to ranks, on node 0 alone; `port` is its port.

    Raises InputError if the other nodes do not come within five minutes.
    """

    def __init__(self, nodes: int, node: int, address: str, path: Path | None) -> None:
        self.peers: dict[int, socket.socket] = {}
        self.unread: dict[int, bytes] = {}  # of peers that may say something yet
        self.server: socket.socket | None = None
        if nodes == 1:
            self.server = socket.create_server(("127.0.0.1", 0), backlog=1024)
            self.port = self.server.getsockname()[1]
            return
        if node == 0:
            self.server = _serve()
            with _serve() as server:
                meeting = Meeting(
                    server.getsockname()[1], self.server.getsockname()[1], secrets.token_hex(32)
                )
                meeting.write(path)
                try:
                    self.peers = _accepted(server, nodes, meeting)
                finally:
                    path.unlink(missing_ok=True)
        else:
            meeting, self.peers[0] = _connected(node, address, path)
        self.port = meeting.ranks_port
        self.unread = dict.fromkeys(self.peers, b"")
        for peer in self.peers.values():
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE.items():
                peer.setsockopt(socket.IPPROTO_TCP, option, value)
            peer.setblocking(False)

    def look(self) -> End | None:
        """Get what another node says about a failure, if any; the end of a node that ended well is none."""
        for node in list(self.unread):
            try:
                part = self.peers[node].recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            self.unread[node] += part
            line, said, _ = self.unread[node].partition(b"\n")
            if not (said or not part or len(line) > 1 << 16):
                continue
            del self.unread[node]
            end = End(1, f"node {node} of the job is gone without a word")
            if said:
                with contextlib.suppress(ValueError, TypeError):
                    end = End(*json.loads(line))
            if end.code:
                return end
        return None

    def tell(self, end: End) -> None:
        """Say how this node ended first."""
        for peer in self.peers.values():
            with contextlib.suppress(OSError):
                peer.sendall(json.dumps([end.code, end.cause]).encode() + b"\n")

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` until the other nodes have ended too: all then give the same exit code."""
        deadline = time.monotonic() + seconds
        for peer in self.peers.values():
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
                while (left := deadline - time.monotonic()) > 0:
                    peer.settimeout(left)
                    if not peer.recv(1 << 16):
                        break
