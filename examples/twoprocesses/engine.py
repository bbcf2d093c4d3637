# SPDX-License-Identifier: Apache-2.0
"""An engine in Python that owns a buffer, and gives its dma-buf to another process.

It makes the buffer with /dev/udmabuf. An engine that has a GPU exports the buffer of its runtime
instead: everything after that is the same.
"""

import array
import fcntl
import hashlib
import mmap
import os
import socket
import struct
import sys
import time

SIZE = 1 << 20
UDMABUF_CREATE = 0x40187542  # _IOW('u', 0x42, struct udmabuf_create)
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


def create():
    """Return the memory, and the descriptor of its dma-buf."""
    memfd = os.memfd_create("engine", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, SIZE)
    fcntl.fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK)
    device = os.open("/dev/udmabuf", os.O_RDWR)
    dmabuf = fcntl.ioctl(device, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memfd, 1, 0, SIZE)))
    return mmap.mmap(memfd, SIZE), dmabuf


def main():
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(sys.argv[1])
    memory, dmabuf = create()
    link.sendmsg([b"buffer"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [dmabuf]))])
    time.sleep(0.1)  # the engine computes; the other process has posted its write meanwhile
    memory[:] = os.urandom(SIZE)
    link.send(b"ready")
    moved = link.recv(100)  # the hash of what has arrived at the peer
    if moved != hashlib.sha256(memory).digest():
        sys.exit("engine: other bytes have arrived")
    print("engine: all bytes have arrived", flush=True)


main()
