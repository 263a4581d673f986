# SPDX-License-Identifier: Apache-2.0
"""What a worker did in its directory, and which states of that directory a fault may leave behind.

A worker makes one random operation after the other and notes each with its outcome; an fsync of any file or directory notes a
point that no fault may fall behind (architecture.md section 4: what survives a power loss is a prefix of history that holds all
that was fsynced). Data is written in blocks of 4 KiB that name their file and version, so that a foreign or torn block is seen.

    Worker(directory, seed, stop).run() -> History        in the worker's process
    History.check(directory, lossless)  -> list of str    what is wrong, empty if nothing is
"""
import errno
import os
import random
import stat

BLOCK = 4096
MAX_BLOCKS = 96  # of a file: reaches past one stripe unit of 64 KiB


def block(file_id, version, index):
    """4 KiB that can't be mistaken for any other block."""
    head = b"<%d.%d.%d>" % (file_id, version, index)
    return (head * (BLOCK // len(head) + 1))[:BLOCK]


class File:
    """One file's possible contents: per block the versions since the last fsync, oldest first (None = never written)."""

    def __init__(self, file_id):
        self.id, self.version = file_id, 0
        self.blocks = {}      # index -> [bytes or None, ...]
        self.sizes = [0]      # since the last fsync

    def write(self, first, count):
        self.version += 1
        for i in range(first, first + count):
            self.blocks.setdefault(i, [None]).append(block(self.id, self.version, i))
        self.sizes.append(max(self.sizes[-1], (first + count) * BLOCK))
        return b"".join(block(self.id, self.version, i) for i in range(first, first + count))

    def synced(self):
        self.blocks = {i: v[-1:] for i, v in self.blocks.items()}
        self.sizes = self.sizes[-1:]

    def faults(self, path, lossless):
        with open(path, "rb") as f:
            got = f.read()
        sizes = self.sizes[-1:] if lossless else self.sizes
        out = []
        if len(got) not in sizes:
            out.append(f"{path}: {len(got)} bytes long, may be {sorted(set(sizes))}")
        for i in range(0, (len(got) + BLOCK - 1) // BLOCK):
            have = got[i * BLOCK:(i + 1) * BLOCK]
            may = self.blocks.get(i, [None])
            may = may[-1:] if lossless else may
            if have not in [bytes(BLOCK) if m is None else m for m in may]:
                out.append(f"{path}: block {i} holds {have[:24]!r}, may be one of {len(may)}: {[m and m[:16] for m in may]}")
        return out


class History:
    """Operations on names: (kind, a, b). Names map to ('d', None) or ('f', file id)."""

    def __init__(self):
        self.ops, self.safe, self.files, self.error, self.unsure = [], 0, {}, None, False

    @staticmethod
    def apply(state, op):
        """The state after it, or None where it must fail."""
        kind, a, b = op
        new = dict(state)
        if kind == "create":
            if a in new:
                return None
            new[a] = ("f", b)
        elif kind == "mkdir":
            if a in new:
                return None
            new[a] = ("d", None)
        elif kind == "unlink":
            if new.get(a, ("d",))[0] != "f":
                return None
            del new[a]
        elif kind == "rmdir":
            if new.get(a, ("f",))[0] != "d":
                return None
            del new[a]
        elif kind == "rename":
            if a not in new:
                return None
            new[b] = new.pop(a)
        elif kind == "link":
            if a not in new or b in new:
                return None
            new[b] = new[a]
        return new

    def states(self, lossless):
        """Every state that may be found, newest first. `unsure`: the last operation met the fault, so it may have been carried
        out before, after, or not at all."""
        prefix = [{}]
        for op in self.ops:
            after = self.apply(prefix[-1], op)
            prefix.append(prefix[-1] if after is None else after)
        n = len(self.ops)
        first = n - (1 if self.unsure else 0) if lossless else self.safe
        for k in range(n, first - 1, -1):
            yield prefix[k]
            if self.unsure and k < n:
                after = self.apply(prefix[k], self.ops[-1])
                if after is not None:
                    yield after

    def check(self, directory, lossless):
        found = {}
        for name in os.listdir(directory):
            found[name] = "d" if stat.S_ISDIR(os.lstat(os.path.join(directory, name)).st_mode) else "f"
        newest, best = None, None
        for state in self.states(lossless):
            newest = state if newest is None else newest
            if {k: v[0] for k, v in state.items()} != found:
                continue  # several states may have the same names: a rename over a name brings another file there
            out = []
            for name, (kind, file_id) in state.items():
                if kind == "f":
                    out += self.files[file_id].faults(os.path.join(directory, name), lossless)
            if not out:
                return []
            best = out if best is None else best
        if best is not None:
            return best + [self.last()]
        return [f"{directory}: no {'such state' if lossless else 'prefix of history from the last fsync on'} has these names; against the newest: "
                f"missing {sorted(set(newest) - set(found))[:8]}, too many {sorted(set(found) - set(newest))[:8]}", self.last()]

    def last(self):
        return f"{len(self.ops)} operations, {self.safe} are safe, the last: {self.ops[-6:]}{', of unsure outcome' if self.unsure else ''}; error {self.error}"


class Worker:
    """stop() turns true before a fault begins: an operation after which it is true may have met the fault."""

    def __init__(self, directory, seed, stop):
        self.stop = stop
        self.dir, self.rng, self.history, self.state, self.next_id = directory, random.Random(seed), History(), {}, 1
        self.dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def path(self, name):
        return os.path.join(self.dir, name)

    def names(self, op, call):
        h = self.history
        h.ops.append(op)
        h.unsure = True
        call()
        h.unsure = self.stop()
        self.state = History.apply(self.state, op)

    def pick(self, kind):
        have = sorted(n for n, v in self.state.items() if v[0] == kind)
        return self.rng.choice(have) if have else None

    def safe(self):
        self.history.safe = len(self.history.ops)

    def create(self):
        name, number = f"f{self.rng.randrange(40)}", self.next_id
        if name in self.state:
            return
        self.next_id += 1
        self.history.files[number] = File(number)
        self.names(("create", name, number), lambda: os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)))

    def write(self):
        name = self.pick("f")
        if not name:
            return
        f = self.history.files[self.state[name][1]]
        first = self.rng.randrange(MAX_BLOCKS)
        data = f.write(first, self.rng.randrange(1, 17))
        fd = os.open(self.path(name), os.O_WRONLY)
        opened_after = self.stop()  # an fsync of it then tells nothing of what was done before the fault
        try:
            if os.pwrite(fd, data, first * BLOCK) != len(data):
                raise OSError(errno.EIO, "short write")
            if self.rng.random() < 0.3:
                os.fsync(fd)
                f.synced()
                if not opened_after:
                    self.safe()
        finally:
            os.close(fd)

    def other_name(self):
        kind = self.rng.choice(["mkdir", "rmdir", "unlink", "rename", "link", "fsyncdir"])
        if kind == "fsyncdir":
            os.fsync(self.dir_fd)
            return self.safe()
        if kind == "mkdir":
            name = f"d{self.rng.randrange(10)}"
            return None if name in self.state else self.names((kind, name, None), lambda: os.mkdir(self.path(name)))
        name = self.pick("d" if kind == "rmdir" else "f")
        if not name:
            return None
        if kind == "rmdir":
            return self.names((kind, name, None), lambda: os.rmdir(self.path(name)))
        if kind == "unlink":
            return self.names((kind, name, None), lambda: os.unlink(self.path(name)))
        to = f"f{self.rng.randrange(40)}"
        if to == name or (kind == "link" and to in self.state) or self.state.get(to) == self.state[name]:
            return None
        return self.names((kind, name, to), lambda: (os.rename if kind == "rename" else os.link)(self.path(name), self.path(to)))

    def run(self):
        """Works until stop() or the first error, which is noted."""
        try:
            while not self.stop():
                roll = self.rng.random()
                if roll < 0.25:
                    self.create()
                elif roll < 0.7:
                    self.write()
                else:
                    self.other_name()
        except OSError as e:
            self.history.error = f"{errno.errorcode.get(e.errno, e.errno)} {e.strerror} {e.filename or ''}"
        finally:
            os.close(self.dir_fd)
        return self.history
