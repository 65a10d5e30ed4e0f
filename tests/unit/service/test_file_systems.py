"""Roots on file systems that do not keep what a local disk keeps are warned about."""

from __future__ import annotations

import os

import pytest

from agentrund.service.file_systems import advice, type_of

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/home rw,nosuid shared:7 master:1 - nfs4 server:/home rw,vers=4.2
41 22 0:36 / /mnt/ssh rw - fuse.sshfs me@host: rw
not a line
"""


@pytest.mark.parametrize(
    ("device", "kind"),
    [((8, 1), "ext4"), ((0, 35), "nfs4"), ((0, 36), "fuse.sshfs"), ((9, 9), None)],
)
def test_the_type_is_that_of_the_device(device, kind):
    assert type_of(os.makedev(*device), MOUNTS) == kind


@pytest.mark.parametrize(
    ("kind", "warned"),
    [("nfs", True), ("nfs4", True), ("cifs", True), ("9p", True), ("fuse.sshfs", True), ("fuseblk", True),
     ("ext4", False), ("tmpfs", False), ("overlay", False), ("btrfs", False), (None, False)],
)  # fmt: skip
def test_network_and_user_space_file_systems_are_warned_about(kind, warned):
    assert (advice(kind) is not None) == warned
