"""The filter of system calls (seccomp): what a program must not ask of the kernel.

`DENIED` holds everywhere. Without namespaces nothing else keeps a program from the files and processes of its
user, so there `DENIED_WITHOUT_NAMESPACES` is refused too: each call that takes a path or starts a process. A
program then lives on what its worker has imported, with threads but without files.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from functools import cache

ARM = platform.machine() == "aarch64"
PR_GET_SECCOMP, PR_SET_SECCOMP, PR_SET_PDEATHSIG = 21, 22, 1
EPERM, ENOSYS = 1, 38
CLONE_NEW_ANY, CLONE_THREAD = 0x7E020000, 0x10000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, GREATER_OR_EQUAL, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
REFUSE, UNKNOWN, ALLOW, KILL = 0x50000 | EPERM, 0x50000 | ENOSYS, 0x7FFF0000, 0x80000000
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # offsets of what a filter sees; low halves of arguments

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
    "kexec_file_load": (320, 294),
    "modify_ldt": (154, None),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # memory outside all limits
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
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
# Each call that takes a path, starts a process or tells of others. By descriptor files stay readable: the
# program has none but its streams.
DENIED_WITHOUT_NAMESPACES = {
    # read or look for files
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "getxattrat": (464, 464),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "listxattrat": (465, 465),
    "file_getattr": (468, 468),
    "name_to_handle_at": (303, 264),
    "inotify_add_watch": (254, 27),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "uselib": (134, None),
    "statmount": (457, 457),
    "listmount": (458, 458),
    # change files
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
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
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # processes, and the name of the machine
    "fork": (57, None),
    "vfork": (58, None),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "getpriority": (140, 141),
    "uname": (63, 160),
}
# fcntl commands that let the kernel signal a process of the caller's choice, or lock a file that others use.
REFUSED_FCNTL = (
    *(8, 10, 15),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    *(6, 7, 37, 38),  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
    *(1024, 1026),  # F_SETLEASE, F_NOTIFY
)
FCNTL, PRCTL = (72, 25), (157, 167)
# Allowed only on the calling process: the first argument must be its number, or 0 for those in ZERO_IS_OWN.
OWN_PROCESS_ONLY = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "get_robust_list": (274, 100),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_getaffinity": (204, 123),
    "sched_getattr": (315, 275),
    "sched_rr_get_interval": (148, 127),
}
ZERO_IS_OWN = {*OWN_PROCESS_ONLY} - {"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"}
CLONE, CLONE3 = (56, 220), (435, 435)
UNREAD = 470  # calls from this number on are newer than these tables


def known() -> bool:
    """Whether the kernel supports seccomp and `DENIED` has numbers for this processor."""
    return platform.machine() in _AUDIT_ARCH and _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _refuse_values(number: int, argument: int, values: Iterable[int]) -> list[bytes]:
    """Refuse the call `number` where the argument is one of `values`, else allow it."""
    tests = [step for value in values for step in (_step(EQUAL, value, 0, 1), _step(ANSWER, REFUSE))]
    return [_step(EQUAL, number, 0, len(tests) + 2), _step(LOAD, argument), *tests, _step(ANSWER, ALLOW)]


@cache
def _for_all(isolated: bool) -> bytes:
    """The part of the filter that is the same for all programs; it follows on the number of the call."""
    column = int(ARM)
    clone = [_step(LOAD, FIRST), _step(ANY_BIT, CLONE_NEW_ANY, 0, 1), _step(ANSWER, REFUSE)]
    if not isolated:  # threads, but no process: limits on processes count all those of the user
        clone += [_step(ANY_BIT, CLONE_THREAD, 1, 0), _step(ANSWER, REFUSE)]
    steps = [
        _step(EQUAL, CLONE3[column], 0, 1),
        _step(ANSWER, UNKNOWN),  # its flags are in memory; libraries then use clone
        _step(EQUAL, CLONE[column], 0, len(clone) + 1),
        *clone,
        _step(ANSWER, ALLOW),
        *_refuse_values(FCNTL[column], SECOND, REFUSED_FCNTL),
        *_refuse_values(PRCTL[column], FIRST, [PR_SET_PDEATHSIG]),
    ]
    denied = DENIED if isolated else DENIED | DENIED_WITHOUT_NAMESPACES
    for numbers in denied.values():
        if numbers[column] is not None:
            steps += [_step(EQUAL, numbers[column], 0, 1), _step(ANSWER, REFUSE)]
    return b"".join([*steps, _step(ANSWER, ALLOW)])


def program(own: int, isolated: bool) -> bytes:
    """The filter as BPF: refused calls fail with EPERM.

    `own`: number of the calling process, in its namespace; `isolated`: whether it has namespaces.
    """
    column = int(ARM)
    steps = [
        _step(LOAD, ARCHITECTURE),  # another one has other numbers
        _step(EQUAL, _AUDIT_ARCH[platform.machine()], 1, 0),
        _step(ANSWER, KILL),
        _step(LOAD, NUMBER),
        _step(GREATER_OR_EQUAL, UNREAD, 0, 1),  # among them those of x32
        _step(ANSWER, UNKNOWN),
    ]
    for name, numbers in OWN_PROCESS_ONLY.items():
        steps += [
            _step(EQUAL, numbers[column], 0, 5),
            _step(LOAD, FIRST),
            _step(EQUAL, own, 2, 0),
            _step(EQUAL, 0 if name in ZERO_IS_OWN else own, 1, 0),
            _step(ANSWER, REFUSE),
            _step(ANSWER, ALLOW),
        ]
    return b"".join(steps) + _for_all(isolated)


def install(isolated: bool) -> None:
    """Filter the system calls of this process and its children from now on (needs no_new_privs)."""
    code = program(os.getpid(), isolated)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if _libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
