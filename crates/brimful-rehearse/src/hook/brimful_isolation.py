"""A process of its own for each GPU model also has files of its own.

The script's writes go to a private layer over the user's files. A process that branches off sees what was
written before, and what it writes itself is seen by its own children only: the rehearsal on one GPU must not
resume from a checkpoint that the rehearsal on another one has written.
"""

import ctypes
import errno
import json
import os
import shutil
import stat

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_NODEV = 4
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18


def branch_off(name):
    """From now on this process, which was just forked, writes into a layer of its own."""
    kind, _, path = os.environ.get("BRIMFUL_ISOLATION", "").partition(":")
    if kind == "overlay":
        _Overlays(path).branch_off(name)
    elif kind == "redirect":
        _redirect(os.path.join(path, f"layer-{name}"))


def _redirect(layer):
    branch = ctypes.CDLL(None).brimful_redirect_branch
    branch.argtypes = [ctypes.c_char_p]
    if branch(os.fsencode(layer)) != 0:
        raise OSError(f"{layer} cannot be added to the layers of the redirecting library")


def can_be_mounted(seen, target):
    """Whether there is something at `target` to mount over, which is to be seen as `seen`.

    Another process may have removed a mount since the script started, and the directory that it was mounted
    on. Here the mount is still there, so the directory is made again. What is gone here too needs no mount.
    """
    if os.path.lexists(target):
        return True
    if not os.path.lexists(seen):
        return False
    if os.path.isdir(seen):
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    return True


class _Overlays:
    """The root directory once more, with upper layers of its own.

    What the keeper mounted is in a file that it wrote; see `overlay` in the crate brimful-isolate.
    """

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            records = json.load(file)
        self.layers = records["layers"]
        self.user_namespace = records["user_namespace"]
        self.mounts = records["mounts"]
        self.libc = ctypes.CDLL(None, use_errno=True)

    def branch_off(self, name):
        directory = os.getcwd()
        own = os.path.join(self.layers, f"branch-{name}")
        root, empty = os.path.join(own, "root"), os.path.join(own, "empty")
        os.makedirs(root)
        os.makedirs(empty)
        self.enter_namespaces()
        self.call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        for number, mount in enumerate(self.mounts):
            target = root + mount["target"].rstrip("/")
            if not can_be_mounted(mount["target"], target):
                continue
            if mount["kind"] == "overlay":
                self.overlay(mount, target, os.path.join(own, str(number)))
            else:
                # There are no branches of branches: the layers themselves are not needed any more.
                source = empty if mount["target"] == self.layers else mount["target"]
                self.call("mount", os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None)
        os.chroot(root)
        os.chdir(directory)
        if self.user_namespace:
            self.drop_capabilities()

    def enter_namespaces(self):
        if not self.user_namespace:
            self.call("unshare", _CLONE_NEWNS)
            return
        uid, gid = os.geteuid(), os.getegid()
        self.call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        # Changing groups is denied already: the outer namespace had to do it too.
        for name, text in (("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)

    def overlay(self, mount, target, own):
        upper, work = os.path.join(own, "upper"), os.path.join(own, "work")
        os.makedirs(upper)
        os.makedirs(work)
        self.imitate(mount["upper"], upper)
        lowers = f"{mount['upper']}:{mount['lower']}"
        try:
            self.mount_overlay(target, lowers, upper, work)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            # The layers themselves lie below this directory, and the kernel refuses one lower layer inside of
            # another. What was written before, mostly little, is copied.
            self.copy(mount["upper"], upper)
            # The attempt has marked the first one as used.
            work = os.path.join(own, "second-work")
            os.makedirs(work)
            self.mount_overlay(target, mount["lower"], upper, work)

    def mount_overlay(self, target, lowers, upper, work):
        options = f"lowerdir={lowers},upperdir={upper},workdir={work},volatile"
        options += ",userxattr" if self.user_namespace else ",redirect_dir=on,index=off"
        # Device nodes that lie in a user's directories, those of GPUs among them, cannot be opened.
        self.call("mount", b"overlay", os.fsencode(target), b"overlay", _MS_NODEV, os.fsencode(options))

    def copy(self, source, target):
        """Copy an upper layer, with the marks of what was deleted."""
        for entry in os.scandir(source):
            to = os.path.join(target, entry.name)
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                os.mkdir(to)
                self.copy(entry.path, to)
                self.imitate(entry.path, to)
            elif stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
                shutil.copy2(entry.path, to, follow_symlinks=False)
            elif stat.S_ISCHR(facts.st_mode):
                os.mknod(to, stat.S_IFCHR, 0)

    def imitate(self, source, target):
        facts = os.stat(source)
        if os.geteuid() == 0:
            os.chown(target, facts.st_uid, facts.st_gid)
        shutil.copystat(source, target)

    def drop_capabilities(self):
        """The script has no more rights than without us."""

        class Header(ctypes.Structure):
            _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

        header = Header(0x20080522, 0)
        self.call("capset", ctypes.byref(header), (ctypes.c_uint32 * 6)())

    def call(self, name, *arguments):
        if name == "mount":
            arguments = (*arguments[:3], ctypes.c_ulong(arguments[3]), arguments[4])
        if getattr(self.libc, name)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}", str(arguments[1:2]))
