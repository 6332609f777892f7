# ruff: noqa: E501 (programs are data)
"""Programs that try to get out of the sandbox, by name. Each prints ESCAPED if it had its effect.

`{secret}` is a file outside, `{folder}` its folder, `{process}` the parent's process number, `{port}` an
open TCP port of this machine, `{abstract}` a unix socket without a file, `{key}` the key of shared memory,
`{host}` this machine's name, `{call}` lines that define `call(number, ...)`: a raw system call. `outside`
makes all these.
"""

import ctypes
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.sandbox.pool import Worker

ROOT = Path(__file__).resolve().parents[1]

CALL = """
import ctypes, os, platform
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return _libc.syscall(number, *arguments)
"""

ESCAPES = {
    # files
    "read a file of the parent": "print('ESCAPED' * ('CANARY' in open('{secret}').read()))",
    "read the password file": "open('/etc/passwd').read(); print('ESCAPED')",
    "read the shadow file": "open('/etc/shadow').read(); print('ESCAPED')",
    "list the home folders": "import os; os.listdir('/home'), os.listdir('/root'); print('ESCAPED')",
    "list the project": "import os; os.listdir('{project}'); print('ESCAPED')",
    "import the project from its folder": (
        "import sys; sys.path.insert(0, '{project}')\n"
        "for name in [n for n in sys.modules if n.startswith('pipeline')]: del sys.modules[name]\n"
        "try:\n    import pipeline.data.rows; print('ESCAPED')\nexcept ModuleNotFoundError:\n    pass"
    ),
    "write beside the secret": "open('{folder}/left', 'w').write('x'); print('ESCAPED')",
    "write into the libraries": (
        "import os, statistics\nopen(os.path.join(os.path.dirname(statistics.__file__), 'left.py'), 'w')"
        ".write('x'); print('ESCAPED')"
    ),
    "remove a library": "import statistics, os; os.remove(statistics.__file__); print('ESCAPED')",
    "symlink in the scratch folder to a secret": (
        "import os; os.symlink('{secret}', 'link'); print('ESCAPED' * len(open('link').read()))"
    ),
    "hard link to a secret": "import os; os.link('{secret}', 'link'); print('ESCAPED')",
    "hard link to a library": "import os, statistics; os.link(statistics.__file__, 'link'); print('ESCAPED')",
    "race of symlinks": (
        "import os, threading\nopen('plain', 'w').write('x')\n"
        "def swap():\n    for _ in range(300):\n        os.symlink('{secret}', 'next'); os.replace('next', 'a')\n"
        "        os.link('plain', 'next'); os.replace('next', 'a')\n"
        "open('a', 'w').write('x'); worker = threading.Thread(target=swap); worker.start()\n"
        "while worker.is_alive():\n    try:\n        print('ESCAPED' * ('CANARY' in open('a').read()), end='')\n"
        "    except OSError:\n        pass"
    ),
    "climb out of the root": "import os; os.chdir('../' * 40); os.stat('{secret}'); print('ESCAPED')",
    "chroot and climb": "import os; os.mkdir('a'); os.chroot('a'); print('ESCAPED')",
    "device memory": "open('/dev/mem', 'rb').read(1); print('ESCAPED')",
    "disks": "import os; print('ESCAPED' * sum(name.startswith(('sd', 'vd')) for name in os.listdir('/dev')))",
    "make a device": "import os; os.mknod('memory', 0o20666, os.makedev(1, 1)); open('memory', 'rb'); print('ESCAPED')",
    "kernel settings": "open('/proc/sys/kernel/core_pattern', 'w').write('|/x'); print('ESCAPED')",
    "set-user-id program": (
        "import os; open('a', 'w').write('#!/bin/sh'); os.chmod('a', 0o6755); os.execv('./a', ['a'])"
    ),
    # the parent, other processes
    "environment of the parent": "open('/proc/{process}/environ').read(); print('ESCAPED')",
    "environment of anyone": (
        "import os\nfor name in os.listdir('/proc'):\n    if name.isdigit():\n"
        "        open(f'/proc/{{name}}/environ').read(); print('ESCAPED')"
    ),
    "own environment": "import os; print('ESCAPED' * ('CANARY' in str(os.environ)))",
    "memory of the parent": "open('/proc/{process}/mem', 'r+b'); print('ESCAPED')",
    "memory of the worker": "open('/proc/1/mem', 'r+b'); open('/proc/1/maps').read(); print('ESCAPED')",
    "signal to the parent": "import os, signal; os.kill({process}, signal.SIGCONT); print('ESCAPED')",
    "signal to the worker": "import os, signal; os.kill(os.getppid(), signal.SIGCONT); print('ESCAPED')",
    "kill everybody": "import os; os.kill(-1, 9); print('ESCAPED')",
    "kill the process group": "import os; os.killpg(os.getpgid(0), 9) if os.getpgid(0) != os.getpid() else 1/0\nprint('ESCAPED')",
    "ptrace": "{call}\nprint('ESCAPED' * (call(101, 16, {process}, 0, 0) == 0 or call(101, 16, os.getppid(), 0, 0) == 0))",
    "process_vm_readv": (
        "{call}\nbuffer = ctypes.create_string_buffer(8)\n"
        "class Part(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
        "here, there = Part(ctypes.addressof(buffer), 8), Part(ctypes.addressof(buffer), 8)\n"
        "for process in ({process}, os.getppid()):\n"
        "    got = call(310, process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0); print('ESCAPED' * (got > 0))"
    ),
    "limits of the worker": (
        "{call}\nlimit = (ctypes.c_ulong * 2)(0, 0)\n"
        "print('ESCAPED' * (call(302, os.getppid(), 0, limit, None) == 0))"
    ),
    "slow the worker down": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19); print('ESCAPED')",
    "pin the worker": "import os; os.sched_setaffinity(os.getppid(), [0]); print('ESCAPED')",
    "file handle of another process": "{call}\nprint('ESCAPED' * (call(434, {process}, 0) >= 0 or call(438, 3, 0, 0) >= 0))",
    "run another program": "import os; print('ESCAPED' * (os.spawnv(os.P_WAIT, '/bin/true', ['true']) == 0))",
    "run the interpreter": "import os, sys; os.execv(sys.executable, ['python', '-c', 'print(\"ESCAPED\")'])",
    "start a shell": "import os; print('ESCAPED' * (os.system('true') == 0))",
    # network
    "TCP to this machine": "import socket; socket.create_connection(('127.0.0.1', {port}), 1); print('ESCAPED')",
    "UDP": "import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', 53)); print('ESCAPED')",
    "listen": "import socket; s = socket.socket(); s.bind(('', 0)); s.listen(); print('ESCAPED')",
    "unix socket": "import socket; socket.socket(socket.AF_UNIX).bind('socket'); print('ESCAPED')",
    "abstract socket": "import socket; socket.socket(socket.AF_UNIX).bind('\\0canary'); print('ESCAPED')",
    "netlink": "import socket; socket.socket(16, 3, 0); print('ESCAPED')",
    "names": "import socket; socket.getaddrinfo('example.com', 80); print('ESCAPED')",
    # privileges and the kernel
    "become another user": "import os; os.setuid(0 if os.getuid() else 1); print('ESCAPED')",
    "a user namespace of its own": "{call}\nprint('ESCAPED' * (call(272, 0x10000000) == 0))",
    "a user namespace by clone": (
        "{call}\ngot = call(56, 0x10000000 | 17, 0, 0, 0, 0)\nprint('ESCAPED' * (got >= 0))"
    ),
    "a namespace by clone3": (
        "{call}\narguments = (ctypes.c_ulong * 8)(0x10000000, 0, 0, 0, 17)\n"
        "print('ESCAPED' * (call(435, arguments, 64) >= 0))"
    ),
    "mount": "{call}\nprint('ESCAPED' * (call(165, b'none', b'.', b'tmpfs', 0, None) == 0))",
    "remount writable": "{call}\nprint('ESCAPED' * (call(165, b'none', b'/', None, 4096 | 32, None) == 0))",
    "unmount": "{call}\nprint('ESCAPED' * (call(166, os.getcwd().encode(), 2) == 0))",
    "pivot_root": "{call}\nprint('ESCAPED' * (call(155, b'.', b'.') == 0))",
    "enter a namespace": "import os\n{call}\nprint('ESCAPED' * (call(308, os.open('/dev/null', 0), 0) == 0))",
    "keys": "{call}\nprint('ESCAPED' * (call(248, b'user', b'canary', b'x', 1, -3) >= 0 or call(250, 0, -3, 0) >= 0))",
    "userfaultfd": "{call}\nprint('ESCAPED' * (call(323, 1) >= 0))",
    "perf events": "{call}\nprint('ESCAPED' * (call(298, bytes(128), 0, -1, -1, 0) >= 0))",
    "bpf": "{call}\nprint('ESCAPED' * (call(321, 0, bytes(128), 128) >= 0))",
    "io_uring": "{call}\nprint('ESCAPED' * (call(425, 4, bytes(128)) >= 0))",
    "kernel module": "{call}\nprint('ESCAPED' * (call(175, b'x', 1, b'') == 0))",
    "calls of another architecture": "{call}\nprint('ESCAPED' * (call(0x40000000 | 39) > 0))",
    "memory without limit (memfd)": "import os; os.memfd_create('x'); print('ESCAPED')",
    "shared memory that stays": "{call}\nprint('ESCAPED' * (call(29, 0x5EED, 1 << 20, 0o1666) >= 0))",
    "host name": "import socket; socket.sethostname('canary'); print('ESCAPED')",
    "clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0); print('ESCAPED')",
    "raise its own limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)); print('ESCAPED')"
    ),
    "lock of a library": "{call}\nprint('ESCAPED' * (call(73, os.open(os.__file__, 0), 1) == 0))",
    "touch a device": "import os; os.utime('/dev/null'); print('ESCAPED')",
    "asynchronous input": "{call}\ncontext = ctypes.c_ulong(0)\nprint('ESCAPED' * (call(206, 9, ctypes.byref(context)) == 0))",
    "project in the arguments": "import sys; print('ESCAPED' * ('{project}' in str(sys.orig_argv + sys.argv)))",
    # calls that reach files, processes and the kernel past the usual ways
    "look for a file": "import os; os.stat('{secret}'); print('ESCAPED')",
    "look for a file by access": "import os; print('ESCAPED' * os.access('{secret}', os.F_OK))",
    "look for a file by statx": "{call}\nprint('ESCAPED' * (call(332, -100, b'{secret}', 0, 2047, bytes(512)) == 0))",
    "look for a file by openat2": "{call}\nprint('ESCAPED' * (call(437, -100, b'{secret}', bytes(24), 24) >= 0))",
    "look for a file by its handle": (
        "{call}\nhandle = ctypes.create_string_buffer(b'\\x80', 136)\n"
        "print('ESCAPED' * (call(303, -100, b'{secret}', handle, bytes(8), 0) == 0))"
    ),
    "look at the disk": "import os; os.statvfs('{folder}'); print('ESCAPED')",
    "wait for a change": "{call}\nprint('ESCAPED' * (call(254, call(253), b'{secret}', 4095) >= 0))",
    "where a link leads": "import os; os.readlink('/proc/{process}/exe'); print('ESCAPED')",
    "who runs": "import os; print('ESCAPED' * ('{process}' in os.listdir('/proc')))",
    "command line of the parent": "open('/proc/{process}/cmdline').read(); print('ESCAPED')",
    "own command line": "print('ESCAPED' * ('{project}' in open('/proc/self/cmdline').read()))",
    "status of the parent": "open('/proc/{process}/status').read(); print('ESCAPED')",
    "own memory map": "open('/proc/self/maps').read(); print('ESCAPED')",
    "own memory as a file": "open('/proc/self/mem', 'rb'); print('ESCAPED')",
    "mode of a file": "import os; os.chmod('{secret}', 0o777); print('ESCAPED')",
    "mode of a folder": "import os; os.chmod('{folder}', 0o777); print('ESCAPED')",
    "mode of a file by fchmodat2": "{call}\nprint('ESCAPED' * (call(452, -100, b'{secret}', 0o777, 0) == 0))",
    "owner of a file": "import os; os.chown('{secret}', os.getuid(), -1); print('ESCAPED')",
    "times of a file": "import os; os.utime('{secret}', (1, 1)); print('ESCAPED')",
    "times of a file, the old way": "{call}\nprint('ESCAPED' * (call(132, b'{secret}', None) == 0))",
    "attribute of a file": "import os; os.setxattr('{secret}', 'user.canary', b'x'); print('ESCAPED')",
    "attributes of a library": "import os; os.setxattr(os.__file__, 'user.canary', b'x'); print('ESCAPED')",
    "length of a file": "import os; os.truncate('{secret}', 0); print('ESCAPED')",
    "remove a file": "import os; os.remove('{secret}'); print('ESCAPED')",
    "rename a file": "import os; os.rename('{secret}', '{folder}/left'); print('ESCAPED')",
    "make a folder": "import os; os.mkdir('{folder}/left'); print('ESCAPED')",
    "make a link beside": "import os; os.symlink('x', '{folder}/left'); print('ESCAPED')",
    "make a pipe beside": "import os; os.mkfifo('{folder}/left'); print('ESCAPED')",
    "append to a file": "open('{secret}', 'a').write('x'); print('ESCAPED')",
    "lock of a file": "{call}\nprint('ESCAPED' * (call(73, os.open('{secret}', 0), 1) == 0))",
    "lock of a library by fcntl": "{call}\nprint('ESCAPED' * (call(72, os.open(os.__file__, 0), 6, bytes(32)) == 0))",
    "lease of a library": "{call}\nprint('ESCAPED' * (call(72, os.open(os.__file__, 0), 1024, 0) == 0))",
    "signals by fcntl": (
        "{call}\nread, write = os.pipe()\nfor process in ({process}, os.getppid()):\n"
        "    print('ESCAPED' * (call(72, read, 8, process) == 0))\n"
        "    print('ESCAPED' * (call(72, read, 15, bytes(4) + process.to_bytes(4, 'little')) == 0))"
    ),
    "choice of the signal": "{call}\nprint('ESCAPED' * (call(72, os.pipe()[0], 10, 9) == 0))",
    "outlive the worker": "{call}\nprint('ESCAPED' * (call(157, 1, 0, 0, 0, 0) == 0))",
    "signals by rt_sigqueueinfo": "{call}\nprint('ESCAPED' * (call(129, {process}, 0, bytes(128)) == 0))",
    "process group of the worker": "import os; os.getpgid(os.getppid()); print('ESCAPED')",
    "session of the parent": "import os; os.getsid({process}); print('ESCAPED')",
    "cores of the parent": "import os; os.sched_getaffinity({process}); print('ESCAPED')",
    "name of the machine": "import os; print('ESCAPED' * (os.uname().nodename == '{host}'))",
    "name of the machine by socket": "import socket; print('ESCAPED' * (socket.gethostname() == '{host}'))",
    "shared memory of others": "{call}\nprint('ESCAPED' * (call(29, {key}, 0, 0) >= 0))",
    "remove shared memory of others": "{call}\nprint('ESCAPED' * (call(31, call(29, {key}, 0, 0), 0, None) == 0))",
    "semaphores that stay": "{call}\nprint('ESCAPED' * (call(64, 0x5EED, 1, 0o1666) >= 0))",
    "messages that stay": "{call}\nprint('ESCAPED' * (call(68, 0x5EED, 0o1666) >= 0))",
    "a POSIX queue": "{call}\nprint('ESCAPED' * (call(240, b'canary', 66, 0o666, None) >= 0))",
    "socket of others": "import socket; socket.socket(socket.AF_UNIX).connect('\\0{abstract}'); print('ESCAPED')",
    "a pair of sockets": "import socket; socket.socketpair(); print('ESCAPED')",
    "secret memory": "{call}\nprint('ESCAPED' * (call(447, 0) >= 0))",
    "memory of others by process_madvise": "{call}\nprint('ESCAPED' * (call(440, 0, None, 0, 0, 0) >= 0))",
    "messages of the kernel": "{call}\nprint('ESCAPED' * (call(103, 3, bytes(512), 512) >= 0))",
    "personality": "{call}\nprint('ESCAPED' * (call(135, 0x40000) >= 0))",
    "descriptor tables": "{call}\nprint('ESCAPED' * (call(154, 0, bytes(128), 128) >= 0))",
    "a call that is newer than the filter": "{call}\nprint('ESCAPED' * (call(470, 0, 0, 0) >= 0))",
    "size of a file by open_tree_attr": "{call}\nprint('ESCAPED' * (call(467, -100, b'{secret}', 0, None, 0) >= 0))",
    "size of a file by open_tree": "{call}\nprint('ESCAPED' * (call(428, -100, b'{secret}', 0) >= 0))",
    "processes by their clocks": "{call}\nprint('ESCAPED' * (call(228, ~{process} << 3 | 2, bytes(16)) == 0))",
    "processes by the precision of their clocks": "{call}\nprint('ESCAPED' * (call(229, ~{process} << 3 | 2, bytes(16)) == 0))",
    "processes by timers": "{call}\nprint('ESCAPED' * (call(222, ~{process} << 3 | 2, None, bytes(8)) == 0))",
    "processes by their turn at disks": "{call}\nprint('ESCAPED' * (call(252, 1, {process}) >= 0))",
    "processes by their capabilities": (
        "{call}\nhead = (ctypes.c_int * 2)(0x20080522, {process})\nprint('ESCAPED' * (call(125, head, bytes(24)) == 0))"
    ),
    "processes by their scheduling": "{call}\nprint('ESCAPED' * (call(145, {process}) >= 0))",
    "flush of all disks": "{call}\nprint('ESCAPED' * (call(162) == 0))",
    "flush of the libraries' disk": "{call}\nprint('ESCAPED' * (call(306, os.open(os.__file__, 0)) == 0))",
    "what others read lately": "{call}\nprint('ESCAPED' * (call(27, 0, 0, bytes(8)) == 0))",
    # the result protocol and the worker's code
    "write to inherited files": (
        "import os\nfor number in range(3, 200):\n    try:\n"
        '        os.write(number, b\'{{"status": "ok", "stdout": "ESCAPED", "stderr": ""}}\\n\')\n'
        "    except OSError:\n        continue\n    print('ESCAPED')"
    ),
    "call the worker's code": (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back:\n    frame = frame.f_back\n"
        "requests = frame.f_locals.get('requests') or frame.f_globals.get('requests')\n"
        "import os; os.read(requests, 1); print('ESCAPED')"
    ),
}

# Programs that must end with this status and do no harm on the way.
STATUSES = {
    "fork bomb": ("error", "import os\nwhile True:\n    os.fork()"),
    "fork bomb that hides its errors": (
        "timeout",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    ),
    "thread bomb": (
        "error",
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(9,)).start()",
    ),
    "memory bomb": ("limit", "x = []\nwhile True:\n    x.append(bytes(1 << 24))"),
    "memory bomb in numpy": ("limit", "import numpy\nnumpy.ones((1 << 20, 1 << 12))"),
    "memory bomb in children": (
        "error",
        "import os\nfor _ in range(5):\n    os.fork()\nx = []\nwhile True:\n    x.append(bytearray(1 << 24))",
    ),
    "disk fill": (
        "error",
        "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(bytes(1 << 20)); n += 1",
    ),
    "many files": ("error", "n = 0\nwhile True:\n    open(f'f{n}', 'wb').close(); n += 1"),
    "one large file": ("error", "f = open('f', 'wb')\nwhile True:\n    f.write(bytes(1 << 20))"),
    "output flood": ("limit", "while True:\n    print('x' * 1000)"),
    "flood of errors": ("limit", "import sys\nwhile True:\n    sys.stderr.write('x' * 1000)"),
    "endless loop": ("timeout", "while True:\n    pass"),
    "sleep": ("timeout", "import time\ntime.sleep(100)"),
    "waits for input": ("error", "input()"),
    "stops itself": ("timeout", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    "ignores every signal": (
        "timeout",
        "import signal\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass",
    ),
    "blocks every signal": (
        "timeout",
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(100)",
    ),
    "a calculation in C that no signal interrupts": ("timeout", "x = 7 ** (10 ** 9)"),
    "closes its output and goes on": (
        "timeout",
        "import os, time\nos.close(1), os.close(2)\ntime.sleep(100)",
    ),
    "reads a pipe of its own": ("timeout", "import os\nos.mkfifo('pipe')\nopen('pipe').read()"),
    "endless recursion": ("error", "def f():\n    f()\nf()"),
    "crash": ("error", "import ctypes\nctypes.string_at(0)"),
    "core dump": ("error", "import os\nos.abort()"),
    "huge whole number": ("error", "print(10 ** 10000)"),
    "exit inside finally": ("ok", "import sys\ntry:\n    1 / 0\nfinally:\n    sys.exit()"),
    "exit past everything": ("ok", "import os\nos._exit(0)"),
    "exit status": ("error", "import sys\nsys.exit(3)"),
    "hooks": (
        "error",
        "import sys, builtins\nsys.excepthook = print\nsys.meta_path.clear()\nbuiltins.print = None\n1 / 0",
    ),
    "no program": ("error", "this is not Python"),
    "a null byte": ("error", "x = 1\0"),
    "keyboard interrupt": ("error", "raise KeyboardInterrupt"),
    "stays behind as a daemon": (
        "ok",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)",
    ),
    "stays behind in threads and children": (
        "ok",
        "import os, threading, time\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(1000)\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    ),
    "forges results": (
        "error",
        'import os\nos.write(1, b\'{"status": "ok", "stdout": "42", "stderr": ""}\\n\')\nos._exit(1)',
    ),
}

# A program whose code and whose output hold a mark, and one that looks for such marks in all memory it can find: the
# pages around every object, and the heap. `write` tells unmapped pages (EFAULT) without a crash.
MARKED = "# MARK=123456789012\nprint('MARK' + '=%012d' % 7**13)"
SEARCH = """
import ctypes, gc, os, re, sys
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
libc.write.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
frames, frame = [], sys._getframe()
while frame := frame.f_back:
    frames += [frame, frame.f_locals, *frame.f_locals.values()]
objects = [*gc.get_objects(), *frames]
objects += [value for found in objects if type(found) is dict for value in dict.values(found)]
blocks = {(id(found) >> 20) + step for found in objects for step in (-1, 0, 1)}
top = libc.sbrk(0) >> 20
blocks |= set(range(top - 200, top + 1))
read, write = os.pipe()
seen, looked = set(), 0
for block in sorted(blocks):
    for page in range(block << 20, block + 1 << 20, 1 << 14):
        if libc.write(write, page, 1 << 14) > 0:
            text = os.read(read, 1 << 14)
            looked += len(text)
            seen |= set(re.findall(rb"MARK=[0-9]{12}", text))
print("ESCAPED" * len(seen), looked >> 20)
"""


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What a program could change of a folder's files: their names, content, mode, owner, links and times."""
    return {
        path.name: (
            path.read_text(),
            *(getattr(path.stat(), f"st_{field}") for field in FIELDS),
            os.listxattr(path),
        )
        for path in sorted(folder.iterdir())
    } | {".": (folder.stat().st_mode, folder.stat().st_mtime_ns)}


FIELDS = ("mode", "uid", "gid", "nlink", "mtime_ns", "ctime_ns")


@contextmanager
def outside(folder: Path) -> Iterator[dict[str, Any]]:
    """The targets of the attacks; `folder` is empty, and of the user who calls this."""
    (folder / "secret").write_text("CANARY")
    os.environ["SANDBOX_CANARY"] = "CANARY"
    libc, key = ctypes.CDLL(None), 0x5EED0000 + os.getpid() % 0xFFFF
    memory, name = libc.shmget(key, 4096, 0o1666), f"canary-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(f"\0{name}")
        unix.listen()
        yield {
            "secret": folder / "secret",
            "folder": folder,
            "project": ROOT,
            "process": os.getpid(),
            "port": server.getsockname()[1],
            "abstract": name,
            "key": key,
            "host": platform.node(),
            "call": CALL,
        }
    libc.shmctl(memory, 0, None)
    del os.environ["SANDBOX_CANARY"]


@contextmanager
def plain() -> Iterator[None]:
    """Workers that start meanwhile get no namespaces: the fallback where the system refuses them."""
    start = Worker._start
    Worker._start = lambda self, kind: start(self, kind) if kind == "plain" else "switched off"
    try:
        yield
    finally:
        Worker._start = start
