# SPDX-License-Identifier: Apache-2.0
"""Disks that lose their power: each server's data on an ext4 of its own in a loop image. cut() is EXT4_IOC_SHUTDOWN without a
flush of the log, so that what the filesystem had not made durable is gone, as after a power loss (linux/fs/ext4/ioctl.c)."""
import fcntl
import os
import struct
import subprocess
import time

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NOLOGFLUSH = 2


def cut(mount_point):
    fd = os.open(mount_point, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    finally:
        os.close(fd)


class Disk:
    def __init__(self, folder, name, size):
        self.image, self.mount_point = os.path.join(folder, name + ".img"), os.path.join(folder, name)
        os.makedirs(self.mount_point)
        with open(self.image, "wb") as f:
            f.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", self.image], check=True)
        self.mounted = False
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.mount_point], check=True)
        self.mounted = True

    def cut(self):
        cut(self.mount_point)

    def unmount(self):
        """Waits for the last thread of a killed server to let go of it."""
        limit = time.monotonic() + 20
        while self.mounted:
            p = subprocess.run(["umount", self.mount_point], capture_output=True, text=True)
            if p.returncode == 0:
                self.mounted = False
            elif time.monotonic() > limit:
                raise RuntimeError(p.stderr.strip())
            else:
                time.sleep(0.02)
