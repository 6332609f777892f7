"""Start the ranks of a training program on this node, and end them together.

    python -m pipeline.core.launch.launcher --ranks=8 MODULE ...
    ... --ranks=8 --nodes=2 --node=1 --address=n1 --port=20000 --ended=FILE MODULE ...

It does what torchrun does not: it passes SIGTERM and SIGUSR1 on, so that the ranks save their state; it
passes their exit code on; its last line names the rank that failed first, its node and the cause. If this
process is killed, its ranks are too. A job on several nodes has a launcher on each; torch's store, at an
address and a port that all are given, joins their ranks. The first launcher whose ranks fail writes the cause
to a file that all nodes share, so that the others end with the same exit code and the same last line.

With `--apart` the ranks do not train together but share out items of work (`pipeline.core.launch.queue`).
Each is given one GPU to see. When one fails that is not rank 0, the others go on and make its items.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.core.device import wants_gpu
from pipeline.core.ending import CAUSES, SIGNALS, node, signal_name
from pipeline.core.errors import AGAIN, InputError, Passing

LISTENING = "PIPELINE_LISTENING"  # environment: the descriptor at which rank 0 serves the others, on its node
PR_SET_PDEATHSIG = 1
TICK = 0.25  # seconds between two looks at the ranks and at the other nodes' file
# Seconds that the other ranks have to end by themselves: to say what else failed, or to save.
GRACE = {AGAIN: 10.0}
SHORT_GRACE = 2.0


@dataclass(frozen=True)
class End:
    """How a program ended first: exit code, 0 for all ranks done, and the cause in one line."""

    code: int
    cause: str


@dataclass(frozen=True)
class Place:
    """This node among the job's nodes, the address of rank 0's store, and the file with the job's end."""

    ranks: int
    nodes: int = 1
    node: int = 0
    address: str = "127.0.0.1"
    port: int = 0
    ended: Path | None = None
    apart: bool = False

    def serve(self) -> socket.socket | None:
        """Listen for the ranks, on the first node alone: nobody else gets the port before rank 0 serves."""
        if self.node:
            return None
        try:
            return socket.create_server((self.address if self.nodes == 1 else "", self.port), backlog=1024)
        except OSError as error:
            said = os.strerror(error.errno)
            raise Passing(f"port {self.port} of {node()}: {said}; run the job again") from error

    def read_end(self) -> End | None:
        """Return how the job ended on another node; None as long as no node has written it."""
        with suppress(OSError, ValueError):  # none yet, or half of it
            return End(**json.loads(self.ended.read_text())) if self.ended else None
        return None

    def write_end(self, end: End) -> End:
        """Write how the job ended, unless another node has done so before; returns the job's first end."""
        if self.ended is None or not end.code:
            return end
        with suppress(OSError):  # another node was first
            self.ended.parent.mkdir(parents=True, exist_ok=True)
            with self.ended.open("x") as file:
                json.dump(asdict(end), file)
        return self.read_end() or end


class Launcher:
    """The ranks of one node."""

    def __init__(self, place: Place, program: list[str]) -> None:
        self.place = place
        self.causes, told = os.pipe()
        os.set_blocking(self.causes, False)
        self.unread, self.said, self.lost = b"", {}, set()
        devices = _devices(place.ranks) if place.apart else []
        signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, signal.SIGCHLD))
        cores = len(os.sched_getaffinity(0))
        if cores < place.ranks:
            print(f"{place.ranks} ranks share {cores} cores on {node()}: docs/cluster.md", file=sys.stderr)
        server = place.serve()
        port = server.getsockname()[1] if server else place.port
        self.processes = {}
        for local in range(place.ranks):
            rank, kept = place.node * place.ranks + local, [told]
            variables = {
                "RANK": rank,
                "LOCAL_RANK": local,
                "WORLD_SIZE": place.ranks * place.nodes,
                "LOCAL_WORLD_SIZE": place.ranks,
                "MASTER_ADDR": place.address,
                "MASTER_PORT": port,
                LISTENING: server.fileno() if server else -1,
                CAUSES: told,
            }
            if devices:
                variables["CUDA_VISIBLE_DEVICES"] = devices[local]
            if server:
                kept.append(server.fileno())
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-m", *program],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                pass_fds=kept,
                preexec_fn=_die_with(os.getpid()),
            )
        os.close(told)
        if server:
            server.close()

    def run(self) -> End:
        """Wait until all ranks ended well, or until one here or elsewhere did not; then end the rest."""
        end = None
        while end is None:
            self._pass_on_signals(TICK)
            end = self._first_end() or self.place.read_end()
        end = self.place.write_end(end)
        if end.code:
            self._end_rest(end.code)
        return end

    def _pass_on_signals(self, seconds: float) -> None:
        found = signal.sigtimedwait((*SIGNALS, signal.SIGCHLD), seconds)
        if found is not None and found.si_signo in SIGNALS:
            for process in self.processes.values():
                process.send_signal(found.si_signo)

    def _first_end(self) -> End | None:
        """How this node's ranks ended: the first that failed, if any; None while they run."""
        codes = {rank: process.poll() for rank, process in self.processes.items()}
        failed = [rank for rank, code in codes.items() if code]
        if self.place.apart:
            self._name_lost(codes)
            failed = [rank for rank in failed if rank == 0]
        if not failed:
            return None if None in codes.values() else End(0, "")
        self._read_causes()
        killed = [rank for rank in failed if codes[rank] < 0 and rank not in self.said]
        told = [rank for rank in self.said if codes[rank]]
        rank = (killed or told or failed)[0]
        code = codes[rank]
        return End(128 - code if code < 0 else code, self._cause(rank, code))

    def _cause(self, rank: int, code: int) -> str:
        ended = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        ranks = self.place.ranks * self.place.nodes
        unsaid = f"rank {rank} of {ranks} on {node()} {ended}; its messages are above"
        return self.said.get(rank, unsaid)

    def _name_lost(self, codes: dict[int, int | None]) -> None:
        """Print which ranks that the others can do without have failed since the last call."""
        lost = {rank for rank, code in codes.items() if code and rank and rank not in self.lost}
        self.lost |= lost
        if lost:
            self._read_causes()
        for rank in sorted(lost):
            print(f"one rank ended: {self._cause(rank, codes[rank])}", file=sys.stderr, flush=True)

    def _read_causes(self) -> None:
        """Read what ranks said when they ended, in that order."""
        while True:
            try:
                part = os.read(self.causes, 1 << 16)
            except BlockingIOError:
                break
            if not part:  # all ranks have ended
                break
            self.unread += part
        *lines, self.unread = self.unread.split(b"\n")
        for line in lines:
            rank, cause = json.loads(line)
            self.said.setdefault(rank, cause)

    def _running(self) -> list[int]:
        return [rank for rank, process in self.processes.items() if process.poll() is None]

    def _wait(self, seconds: float) -> list[int]:
        """Ranks that still run after `seconds`, or none as soon as all ended."""
        deadline = time.monotonic() + seconds
        while (running := self._running()) and (left := deadline - time.monotonic()) > 0:
            self._pass_on_signals(left)
        return running

    def _end_rest(self, code: int) -> None:
        """End the ranks that have not done so themselves; where one hangs, they say first where they are."""
        left = self._wait(GRACE.get(code, SHORT_GRACE))
        if code == AGAIN:
            for rank in left:
                status = Path(f"/proc/{self.processes[rank].pid}/status").read_text()
                name, _, state = [line.split(None, 1)[1] for line in status.splitlines()[:3]]
                print(f"rank {rank} on {node()}: phase {name}, {state}:", file=sys.stderr, flush=True)
                for number in (signal.SIGUSR2, signal.SIGCONT):
                    self.processes[rank].send_signal(number)
            left = self._wait(SHORT_GRACE if left else 0)
        for rank in left:
            self.processes[rank].kill()
        self._wait(GRACE[AGAIN])


def _devices(ranks: int) -> list[str]:
    """Return the GPU that each rank is to see; none on a machine without GPUs."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not wants_gpu():
        return []
    found = [*map(str, range(ranks))] if told is None else told.split(",")
    if len(found) < ranks:
        raise InputError(f"launch.ranks is {ranks}, but CUDA_VISIBLE_DEVICES names {len(found)} GPUs: {told}")
    return found


def _die_with(parent: int) -> Callable[[], None]:
    """Return what a child does before its program starts: it asks to be killed when its parent dies."""
    library = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind, default in (
        ("ranks", int, 1),
        ("nodes", int, 1),
        ("node", int, 0),
        ("address", str, "127.0.0.1"),
        ("port", int, 0),
        ("ended", Path, None),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--apart", action="store_true", help="the ranks share out items of work")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="module and its arguments")
    options = vars(parser.parse_args())
    program = options.pop("program")
    if options["nodes"] > 1 and not (options["port"] and options["ended"]):
        parser.error("several nodes need --port and --ended, a file in a folder that all of them share")
    place = Place(**options)
    try:
        end = Launcher(place, program).run()
    except InputError as error:
        end = place.write_end(End(2, str(error)))
    if end.code:
        print(f"error: {end.cause}", file=sys.stderr, flush=True)
    sys.exit(end.code)


if __name__ == "__main__":
    main()
