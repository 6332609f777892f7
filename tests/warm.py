"""Starts programs from a process that has imported torch, DeepSpeed, transformers and vLLM already.

A fork of it runs a module as `python -m` does. The imports take two thirds of the time of a tiny program.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pipeline.core.ending import end

ROOT = Path(__file__).resolve().parents[1]
REQUEST_BYTES = 1 << 20


class Program:
    """A running program, with the methods of `subprocess.Popen` that tests use. Its stderr is kept."""

    def __init__(self, module: str, words: Sequence[object], environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.server = server()
        request = {"words": [module, *map(str, words)], "environment": dict(environment)}
        with tempfile.NamedTemporaryFile(delete=False) as errors:
            self.errors = Path(errors.name)
            socket.send_fds(self.server, [json.dumps(request).encode()], [errors.fileno()])
        self.pid = int(self.server.recv(REQUEST_BYTES))
        self.handle = os.pidfd_open(self.pid)

    def poll(self, timeout: float = 0) -> int | None:
        """The exit status as `Popen` has it; None if the program still runs after `timeout` seconds."""
        if self.returncode is None and select.select([self.handle], [], [], timeout)[0]:
            self.server.send(json.dumps({"reap": self.pid}).encode())
            self.returncode = os.waitstatus_to_exitcode(int(self.server.recv(REQUEST_BYTES)))
            os.close(self.handle)
        return self.returncode

    def wait(self, timeout: float) -> int:
        code = self.poll(timeout)
        if code is None:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired(str(self.pid), timeout, stderr=self.errors.read_bytes())
        return code

    def communicate(self, timeout: float = 600) -> tuple[None, str]:
        self.wait(timeout)
        text = self.errors.read_text()
        self.errors.unlink()
        return None, text

    def send_signal(self, number: int) -> None:
        signal.pidfd_send_signal(self.handle, number)


@cache
def server() -> socket.socket:
    """The connection to the warm process, which ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.warm", str(its.fileno())]
    subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[its.fileno()])
    its.close()
    return ours


def serve(connection: socket.socket) -> None:
    """Fork for each request; returns in the fork, and when the tests have ended."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 1)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "reap" in request:
            connection.send(b"%d" % os.waitpid(request["reap"], 0)[1])
            continue
        child = os.fork()
        if not child:
            break
        os.close(files[0])
        connection.send(b"%d" % child)
    connection.close()
    os.dup2(files[0], sys.stderr.fileno())
    os.environ.update(request["environment"])
    sys.argv = request["words"]


if __name__ == "__main__":
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401  # which compiles: seconds, at the first engine

    import pipeline.training.generation  # noqa: F401

    gc.freeze()  # what is there is no garbage; a search would touch, and so copy, all memory of a fork
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    end(code if isinstance(code, int) else bool(code))
