"""The kernel's files that a container under the host's own kernel does not get to see, with what they would tell.

The runtime puts an empty file or an empty read-only folder over each that is there. gVisor has files of its own, which say
nothing of the host, and ignores the list.

What Node and Python read stays: `/proc/cpuinfo`, `meminfo`, `stat`, `uptime`, `sys/vm`, `sys/kernel`, `/sys/fs/cgroup`. So does
what belongs to the container's own namespaces (`/proc/sysvipc`, and `/proc/net`, which is each process's own and cannot be
covered, although `softnet_stat`, `sockstat` and `protocols` in it count for the machine).
"""

from collections.abc import Mapping
from typing import Final

_HIDDEN: Final[Mapping[str, str]] = {
    "how the host was started, and which kernel it is": """
        /proc/bootconfig /proc/cmdline /proc/config.gz /proc/version /proc/version_signature /proc/sys/kernel/random/boot_id
    """,
    "what else runs on it, and how much": """
        /proc/cgroups /proc/latency_stats /proc/loadavg /proc/locks /proc/pressure /proc/sched_debug /proc/schedstat
        /proc/timer_list /proc/timer_stats /proc/sys/fs/aio-nr /proc/sys/fs/dentry-state /proc/sys/fs/file-nr
        /proc/sys/fs/inode-nr /proc/sys/fs/inode-state /proc/sys/fs/quota /proc/sys/kernel/pty
    """,
    "its memory": """
        /proc/buddyinfo /proc/iomem /proc/kcore /proc/kpagecgroup /proc/kpagecount /proc/kpageflags /proc/pagetypeinfo
        /proc/slabinfo /proc/swaps /proc/vmallocinfo /proc/vmcore /proc/vmstat /proc/zoneinfo
    """,
    "its disks and file systems": """
        /proc/diskstats /proc/filesystems /proc/fs /proc/mdstat /proc/partitions /proc/scsi /proc/spl /proc/sys/fs/binfmt_misc
        /sys/block /sys/fs/bcachefs /sys/fs/bpf /sys/fs/btrfs /sys/fs/erofs /sys/fs/ext4 /sys/fs/f2fs /sys/fs/fuse
        /sys/fs/nfs /sys/fs/pstore /sys/fs/resctrl /sys/fs/selinux /sys/fs/smackfs /sys/fs/tmpfs /sys/fs/xfs /sys/fs/zfs
    """,
    "its devices and interrupts": """
        /proc/acpi /proc/asound /proc/bus /proc/consoles /proc/devices /proc/dma /proc/driver /proc/fb /proc/interrupts
        /proc/ioports /proc/irq /proc/misc /proc/mtrr /proc/softirqs /proc/sys/dev /proc/tty
        /sys/bus /sys/class /sys/dev /sys/devices /sys/firmware /sys/hypervisor /sys/power
    """,
    "its kernel's code, modules, messages and keys": """
        /proc/crypto /proc/dynamic_debug /proc/execdomains /proc/kallsyms /proc/key-users /proc/keys /proc/kmsg /proc/modules
        /proc/sys/abi /proc/sys/debug /proc/sys/user /sys/kernel /sys/module
    """,
}

TERMINALS: Final = "/dev/pts"
"""Where pseudo-terminals are made: a machine has a number of them for all, and no container's limit counts them."""
PATHS: Final = (*(path for paths in _HIDDEN.values() for path in paths.split()), TERMINALS)
READ_ONLY: Final = ("/proc/sys", "/proc/sysrq-trigger")
"""What of `/proc` stays visible and must not be written, whoever would be allowed to."""
