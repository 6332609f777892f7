# ruff: noqa: E501 (programs are data)
"""Attacks that one layer of the sandbox stops by itself, all other layers off."""

# By layer: effects that this layer prevents where all others are off. Each prints ESCAPED if it happened.
# `{open_folder}` is a folder that everyone may read and write, `{own}` sets `path` to a new name in it (on a busy
# machine the program in the other sandbox may not have ended yet), `{key}` names shared memory of this machine.
ABSTRACT = "import socket; socket.socket(socket.AF_UNIX).connect('\\0{abstract}'); print('ESCAPED')"
LAYERS = {
    "namespaces": {
        "network": "import socket; socket.socket().connect(('127.0.0.1', {port})); print('ESCAPED')",
        "processes": (
            "import os\ntry:\n    os.kill({process}, 0)\nexcept PermissionError:\n    pass\nprint('ESCAPED')"
        ),
        "files": "open('{open_folder}/secret').read(); print('ESCAPED')",
        "shared memory": "{call}\nprint('ESCAPED' * (call(29, {key}, 0, 0) >= 0))",
        "a socket without a file": ABSTRACT,
        "name of the machine": "import os; print('ESCAPED' * (os.uname().nodename == '{host}'))",
    },
    "Landlock": {
        "read": "open('{open_folder}/secret').read(); print('ESCAPED')",
        "list": "import os; os.listdir('{open_folder}'); print('ESCAPED')",
        "write": "open('{open_folder}/written', 'w'); print('ESCAPED')",
        "make a folder": "import os; {own}; os.mkdir(path); os.rmdir(path); print('ESCAPED')",
        "TCP": "import socket; socket.socket().connect(('127.0.0.1', {port})); print('ESCAPED')",
        "listen": "import socket; socket.socket().bind(('', 0)); print('ESCAPED')",
        "a socket without a file": ABSTRACT,
        "signals": "import os; os.kill(os.getppid(), 0); print('ESCAPED')",
    },
    "seccomp": {
        "network": "import socket; socket.socket().connect(('127.0.0.1', {port})); print('ESCAPED')",
        "a program": "import os; os.spawnl(os.P_WAIT, '/bin/true', 'true') == 0 and print('ESCAPED')",
        "the worker": "import os; os.kill(os.getppid(), 0); print('ESCAPED')",
        "memory": "import os; os.memfd_create('x'); print('ESCAPED')",
        "a namespace": "{call}\nprint('ESCAPED' * (call(272, 0x10000000) == 0))",
        "shared memory": "{call}\nprint('ESCAPED' * (call(29, {key}, 0, 0) >= 0))",
        "times of a file": "import os; os.utime('{open_folder}/secret'); print('ESCAPED')",
        "lock of a file": "{call}\nprint('ESCAPED' * (call(73, os.open('{open_folder}/secret', 0), 1) == 0))",
        "process group": "import os; os.setpgid(0, 0); print('ESCAPED')",
        "signals by fcntl": "{call}\nprint('ESCAPED' * (call(72, os.pipe()[0], 8, os.getppid()) == 0))",
        "choice of the signal": "{call}\nprint('ESCAPED' * (call(72, os.pipe()[0], 10, 9) == 0))",
        "read": "open('{open_folder}/secret').read(); print('ESCAPED')",
        "write": "import os; os.close(os.open('{open_folder}/secret', os.O_WRONLY)); print('ESCAPED')",
        "look": "import os; os.stat('{open_folder}/secret'); print('ESCAPED')",
        "list": "import os; os.listdir('{open_folder}'); print('ESCAPED')",
        "make a folder": "import os; os.mkdir('{open_folder}/a'); os.rmdir('{open_folder}/a'); print('ESCAPED')",
        "lock by fcntl": "{call}\nprint('ESCAPED' * (call(72, os.open('{open_folder}/secret', 0), 6, bytes(32)) == 0))",
        "a process": "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\nprint('ESCAPED')",
        "group of others": "import os; os.getpgid(os.getppid()); print('ESCAPED')",
        "other processes": "import os; print('ESCAPED' * ('{process}' in os.listdir('/proc')))",
        "name of the machine": "import os; print('ESCAPED' * (os.uname().nodename == '{host}'))",
        "outlive the worker": "{call}\nprint('ESCAPED' * (call(157, 1, 0, 0, 0, 0) == 0))",
        "watch a file": "{call}\nprint('ESCAPED' * (call(254, call(253), b'{open_folder}/secret', 4095) >= 0))",
        "asynchronous input": "{call}\ncontext = ctypes.c_ulong(0)\nprint('ESCAPED' * (call(206, 8, ctypes.byref(context)) == 0))",
    },
    "limits": {
        "memory": "bytes(1 << 31); print('ESCAPED')",
        "threads": (
            "import threading, time\nthreading.stack_size(1 << 16)\n"
            "others = int(open('/proc/loadavg').read().split()[3].split('/')[1])\n"
            "for _ in range(others + 50):\n"
            "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint('ESCAPED')"
        ),
        "open files": "files = [open('/dev/null') for _ in range(80)]; print('ESCAPED')",
        "a file's size": (
            "import os; {own}\nfile = os.open(path, os.O_CREAT | os.O_WRONLY)\n"
            "os.unlink(path)\nos.ftruncate(file, 17 << 20); print('ESCAPED')"
        ),
        "processor time": "import resource as r; print('ESCAPED' * (r.getrlimit(r.RLIMIT_CPU)[1] < 0))",
        "core dumps": "import resource as r; print('ESCAPED' * (r.getrlimit(r.RLIMIT_CORE)[1] != 0))",
        "message queues": "import resource as r; print('ESCAPED' * (r.getrlimit(r.RLIMIT_MSGQUEUE)[1] != 0))",
    },
    "another user": {
        "read": "open('{open_folder}/private').read(); print('ESCAPED')",
        "mode": "import os; os.chmod('{open_folder}/secret', 0o666); print('ESCAPED')",
        "processes": "import os; os.kill({process}, 0); print('ESCAPED')",
    },
    "no capabilities": {
        "mount": "{call}\nprint('ESCAPED' * (call(165, b'none', b'.', b'tmpfs', 0, None) == 0))",
        "chroot": "import os; os.mkdir('a'); os.chroot('a'); print('ESCAPED')",
        "name of the machine": "import socket; socket.sethostname('canary'); print('ESCAPED')",
    },
}
# The version of Landlock that an attack needs, if not the first.
LANDLOCK_SINCE = {"TCP": 4, "listen": 4, "a socket without a file": 6, "signals": 6}
