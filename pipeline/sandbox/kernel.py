"""Linux system calls missing in Python 3.11: namespaces, mounts, capabilities, Landlock, seccomp."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_NEW_ANY = 0x7E020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ST_RELATIME, MS_RELATIME = 1 << 12, 1 << 21
KEPT_FLAGS = 0b1111 | 1 << 10 | 1 << 11  # ro, nosuid, nodev, noexec, noatime, nodiratime: equal in statvfs
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAPBSET_DROP = 1, 4, 8, 24
PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_SET_SECCOMP = 38, 36, 22
CAPABILITY_VERSION_3 = 0x20080522
EPERM, ENOSYS = 1, 38

ARM = platform.machine() == "aarch64"
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_libc = ctypes.CDLL(None, use_errno=True)

# System calls that no calculation needs, as (x86_64, aarch64) numbers: they reach other processes, the
# network, the state of the kernel, or memory outside all limits.
DENIED = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "execve": (59, 221),
    "execveat": (322, 281),
    # network
    "socket": (41, 198),
    "socketpair": (53, 199),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    # state of the kernel
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "personality": (135, 92),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # memory outside all limits
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "io_setup": (206, 0),
    "io_submit": (209, 2),
    # files that others use too
    "flock": (73, 32),
}
# Calls that change files or processes which no other layer protects where there are no namespaces.
DENIED_WITHOUT_NAMESPACES = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "setpgid": (109, 154),
}
# fcntl commands by which the kernel signals a process of the caller's choice.
F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY, F_SETLEASE = 8, 10, 15, 1026, 1024
_FCNTL = (72, 25)
# Allowed only on the calling process: the first argument must be its number (or 0 for prlimit64).
OWN_PROCESS_ONLY = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID its children) to new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data and data.encode()), f"mount {target}")


def bind(source: str, target: str, flags: int) -> None:
    """Bind-mount `source` at `target`, keeping the mount flags of the source, as the kernel demands."""
    mount(source, target, None, MS_BIND | MS_REC)
    found = os.statvfs(target).f_flag
    kept = found & KEPT_FLAGS | (MS_RELATIME if found & ST_RELATIME else 0)
    mount("none", target, None, MS_BIND | MS_REMOUNT | flags | kept)


def change_root(folder: str) -> None:
    """Make `folder`, a mount point, the root of this mount namespace and unmount the old root."""
    os.chdir(folder)
    number = 41 if ARM else 155
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def set_capabilities(raised: bool) -> None:
    """Make all permitted capabilities effective, or drop all for good."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    words = bytearray(24)
    buffer = (ctypes.c_char * 24).from_buffer(words)
    if raised:
        _check(_libc.capget(header, buffer), "capget")
        low, high = struct.unpack("6I", words)[1], struct.unpack("6I", words)[4]
        words[:] = struct.pack("6I", low, low, 0, high, high, 0)
    else:
        for number in range(64):
            if _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
                break
    _check(_libc.capset(header, buffer), "capset")


def seccomp_known() -> bool:
    """Whether the kernel supports seccomp and DENIED has numbers for this processor."""
    return platform.machine() in _AUDIT_ARCH and _libc.prctl(21, 0, 0, 0, 0) >= 0


def seccomp_filter(own: int, isolated: bool) -> bytes:
    """BPF program that refuses DENIED, new namespaces by clone, and signals to other processes than `own`.

    Refused calls fail with EPERM. `own`: number of the calling process in its namespace; `isolated`: whether
    it has namespaces and a view of its own, so that files outside need no protection by this filter.
    """
    column = int(ARM)

    def instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    load, equal, greater, some, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse, allow, kill = 0x50000 | EPERM, 0x7FFF0000, 0x80000000
    program = [
        instruction(load, 4),  # architecture: others have other numbers
        instruction(equal, _AUDIT_ARCH[platform.machine()], 1, 0),
        instruction(answer, kill),
        instruction(load, 0),  # number of the call
        instruction(greater, 0x40000000, 0, 1),  # x32 calls
        instruction(answer, refuse),
        instruction(equal, _CLONE3[column], 0, 1),
        instruction(answer, 0x50000 | ENOSYS),  # its flags are in memory; libraries then use clone
        instruction(equal, _CLONE[column], 0, 4),
        instruction(load, 16),  # low half of the first argument
        instruction(some, CLONE_NEW_ANY, 0, 1),
        instruction(answer, refuse),
        instruction(answer, allow),
    ]
    commands = (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY, F_SETLEASE)
    program += [instruction(equal, _FCNTL[column], 0, 2 * len(commands) + 2), instruction(load, 24)]
    for command in commands:
        program += [instruction(equal, command, 0, 1), instruction(answer, refuse)]
    program.append(instruction(answer, allow))
    denied = DENIED if isolated else DENIED | DENIED_WITHOUT_NAMESPACES
    for numbers in denied.values():
        if numbers[column] is None:  # this processor's Linux never had the call
            continue
        program += [instruction(equal, numbers[column], 0, 1), instruction(answer, refuse)]
    for name, numbers in OWN_PROCESS_ONLY.items():
        program += [
            instruction(equal, numbers[column], 0, 5),
            instruction(load, 16),
            instruction(equal, own, 2, 0),
            instruction(equal, 0 if name == "prlimit64" else own, 1, 0),
            instruction(answer, refuse),
            instruction(answer, allow),
        ]
    return b"".join([*program, instruction(answer, allow)])


def install_seccomp(program: bytes) -> None:
    """Filter the system calls of this process and its children from now on (needs no_new_privs)."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


def landlock_version() -> int:
    """Version of the kernel's Landlock interface; 0 if it has none."""
    return max(0, _libc.syscall(444, None, ctypes.c_size_t(0), 1))


def install_landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Deny this process and its children all files but these folders (needs no_new_privs)."""
    read, version = 0b1100, landlock_version()
    handled = 0x1FFF | sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)
    ruleset = _check(_libc.syscall(444, struct.pack("Q", handled), ctypes.c_size_t(8), 0), "landlock")
    for paths, rights in ((readable, read), (writable, handled)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except PermissionError:
                continue  # unreachable for this user anyway
            own = rights if os.path.isdir(path) else rights & (0b110 | 1 << 14)
            _check(
                _libc.syscall(445, ruleset, 1, struct.pack("=Qi", own & handled, handle), 0), "landlock rule"
            )
            os.close(handle)
    _check(_libc.syscall(446, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
