"""The launchers of a job's nodes find each other and nobody else, whoever calls."""

import os
import random
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pipeline.protocol.errors import InputError
from pipeline.ranks import links
from pipeline.ranks.links import PORTS, End, Links, Meeting
from pipeline.start import command


def start(made: dict[int, Links], nodes: int, node: int, path: Path) -> threading.Thread:
    """A thread that makes the links of a node."""

    def make() -> None:
        made[node] = Links(nodes, node, "127.0.0.1", path)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    return thread


def meeting_at(path: Path) -> Meeting:
    while True:
        with suppress(OSError, ValueError, TypeError):
            return Meeting.read(path)
        time.sleep(0.01)


def call(port: int, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))


def forge(port: int, stack: ExitStack, meeting: Meeting, node: int) -> socket.socket:
    """A call in the form of a launcher's, with the secret of another job."""
    connection = call(port, stack)
    challenge, own = connection.recv(65).decode().strip(), "0" * 64
    proof = meeting.prove("node", node, challenge, own).decode()
    connection.sendall(f"{node} {own} {proof}\n".encode())
    return connection


def replay(port: int, stack: ExitStack, meeting: Meeting) -> None:
    """A proof that was right for another challenge of this job."""
    connection = call(port, stack)
    proof = meeting.prove("node", 1, "f" * 64, "0" * 64).decode()
    connection.sendall(f"1 {'0' * 64} {proof}\n".encode())


STRANGERS: dict[str, Callable[[Meeting, ExitStack], object]] = {
    "a port scan": lambda meeting, stack: call(meeting.port, stack).close(),
    "silence": lambda meeting, stack: call(meeting.port, stack),
    "one line of HTTP": lambda meeting, stack: call(meeting.port, stack).sendall(b"GET / HTTP/1.1\r\n\r\n"),
    "half a line": lambda meeting, stack: call(meeting.port, stack).sendall(b"1 abc"),
    "random bytes": lambda meeting, stack: call(meeting.port, stack).sendall(random.randbytes(5000)),
    "nested JSON": lambda meeting, stack: call(meeting.port, stack).sendall(b"[" * 900 + b"\n"),
    "an end": lambda meeting, stack: call(meeting.port, stack).sendall(b'[1, "over"]\n'),
    "another job": lambda meeting, stack: forge(meeting.port, stack, Meeting(0, 0, "another"), 1),
    "a node that there is not": lambda meeting, stack: forge(meeting.port, stack, meeting, 3),
    "the first node": lambda meeting, stack: forge(meeting.port, stack, meeting, 0),
    "a replay": lambda meeting, stack: replay(meeting.port, stack, meeting),
    "a crowd": lambda meeting, stack: [call(meeting.port, stack) for _ in range(links.MOST_CALLERS + 50)],
}


@pytest.mark.parametrize("name", STRANGERS)
def test_whoever_calls_the_nodes_of_the_job_and_only_they_are_linked(name: str, tmp_path: Path) -> None:
    path, made = tmp_path / "work/meeting", {}
    with ExitStack() as stack:
        first = start(made, 3, 0, path)
        meeting = meeting_at(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert meeting.port in PORTS and meeting.ranks_port in PORTS and max(PORTS) < 32768
        others = [start(made, 3, 1, path)]
        STRANGERS[name](meeting, stack)
        others[0].join(30)
        STRANGERS[name](meeting, stack)
        assert first.is_alive(), "the first node does not wait for the third"
        others.append(start(made, 3, 2, path))
        for thread in (first, *others):
            thread.join(30)
    assert sorted(made) == [0, 1, 2] and set(made[0].peers) == {1, 2} and not path.exists()
    assert made[0].server.getsockname()[1] == made[1].port == made[2].port == meeting.ranks_port
    assert [made[node].look() for node in range(3)] == [None] * 3
    made[2].tell(End(7, "rank 5: no answer"))
    assert wait(made[0].look) == End(7, "rank 5: no answer")
    made[0].tell(End(7, "rank 5: no answer"))
    assert wait(made[1].look) == End(7, "rank 5: no answer")
    made[1].peers[0].close()
    assert wait(made[0].look) == End(1, "node 1 of the job is gone without a word")
    assert made[0].look() is None


def wait(look: Callable[[], End | None]) -> End:
    while (end := look()) is None:
        time.sleep(0.01)
    return end


def test_a_node_tells_nothing_to_somebody_else_at_the_first_nodes_port(tmp_path: Path) -> None:
    path, made = tmp_path / "meeting", {}
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        Meeting(impostor.getsockname()[1], 1, "secret").write(path)  # as an earlier run of the job left it
        second = start(made, 2, 1, path)
        caller = impostor.accept()[0]
        caller.sendall(b"0" * 64 + b"\n")
        assert b"secret" not in caller.recv(1000)
        caller.sendall(b"0" * 64 + b"\n")
        assert caller.recv(1000) == b"", "it hangs up"
        first = start(made, 2, 0, path)
        for thread in (first, second):
            thread.join(30)
    assert made[1].port == made[0].port and set(made[0].peers) == {1}


def test_a_meeting_of_another_user_or_damaged_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "meeting"
    for text in ("", "{", "[]", '{"port": 1}', "\x00"):
        path.write_text(text)
        with pytest.raises((ValueError, TypeError)):
            Meeting.read(path)
    if os.getuid() == 0:
        Meeting(1, 2, "secret").write(path)
        os.chown(path, 12345, 12345)
        with pytest.raises(PermissionError, match="belongs to another user"):
            Meeting.read(path)


def test_an_end_that_comes_in_parts_is_read_whole(tmp_path: Path) -> None:
    path, made = tmp_path / "meeting", {}
    threads = [start(made, 2, node, path) for node in (0, 1)]
    for thread in threads:
        thread.join(30)
    for part in (b"[2, ", b'"rank 1: ', b'no file"]'):
        made[1].peers[0].sendall(part)
        time.sleep(0.05)
        assert made[0].look() is None
    made[1].peers[0].sendall(b"\n")
    assert wait(made[0].look) == End(2, "rank 1: no file")


def test_nodes_that_do_not_come_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "START_SECONDS", 0.5)
    path, made = tmp_path / "meeting", {}
    second = start(made, 4, 2, path)
    with pytest.raises(InputError, match="of the job's 4 nodes these did not start in five minutes: 1, 3"):
        Links(4, 0, "127.0.0.1", path)
    second.join(30)
    assert not path.exists()
    with pytest.raises(InputError, match="no connection to the job's first node, 127.0.0.1"):
        Links(4, 1, "127.0.0.1", path)


def test_the_nodes_of_a_slurm_step_meet_beside_its_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.start.first_host", lambda: "n1")
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
    first, second = (
        command(["pipeline.sft"], 8, step | {"SLURM_NODEID": node}, tmp_path / "work") for node in "01"
    )
    assert f"--meeting={tmp_path}/.work.17.0" in first and "--address=n1" in first
    assert {*first} ^ {*second} == {"--node=0", "--node=1"}
