"""Packs an image, or lists the content of a mounted volume; see make.sh.

A packed image begins with the number of blocks (u32). Each block that is not zero follows with its address (u32), the
length of its packed bytes (u16), and the bytes packed by PackBits: a byte n below 128 is followed by n + 1 literal
bytes, and a byte n above 128 is followed by one byte that is repeated 257 - n times.
"""

import os
import stat
import struct
import sys

BLOCK = 4096


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def pack_bits(content):
    packed, literal, at = bytearray(), bytearray(), 0
    while at < len(content):
        run = 1
        while run < 128 and at + run < len(content) and content[at + run] == content[at]:
            run += 1
        if run > 2:
            packed += literals(literal) + bytes([257 - run, content[at]])
            literal = bytearray()
        else:
            literal += content[at : at + run]
        at += run
    return packed + literals(literal)


def literals(content):
    packed = bytearray()
    for at in range(0, len(content), 128):
        some = content[at : at + 128]
        packed += bytes([len(some) - 1]) + some
    return packed


def read(path):
    with open(path, "rb") as file:
        return file.read()


def upgraded(path):
    """Packs only the superblock (block 4), with the bytes that FORMAT.md specifies for an upgrade to version 2."""
    image = bytearray(read(path))
    superblock = image[4 * BLOCK : 5 * BLOCK]
    blocks = struct.unpack_from("<I", superblock, 120)[0] * struct.unpack_from("<I", superblock, 124)[0]
    tick_shift = max(blocks.bit_length() - 1 - 18, 0)
    struct.pack_into("<I", superblock, 12, 2)
    struct.pack_into("<QQQI", superblock, 184, 0, 0, 1, tick_shift)
    struct.pack_into("<I", superblock, 8, crc32c(superblock[12:]))
    write_packed(bytes(4 * BLOCK) + superblock)


def pack(path):
    write_packed(read(path))


def write_packed(image):
    output = sys.stdout.buffer
    output.write(struct.pack("<I", len(image) // BLOCK))
    for at in range(0, len(image), BLOCK):
        block = image[at : at + BLOCK]
        if block.count(0) < BLOCK:
            packed = pack_bits(block)
            output.write(struct.pack("<IH", at // BLOCK, len(packed)) + packed)


def line(top, path):
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    size, content = found.st_size, b""
    if kind == stat.S_IFREG:
        content = read(path)
    elif kind == stat.S_IFLNK:
        content = os.readlink(path).encode()
    elif kind == stat.S_IFDIR:
        size = 0
    if kind != stat.S_IFLNK:
        for name in sorted(os.listxattr(path)):
            content += b"\0" + name.encode() + b"\0" + os.getxattr(path, name)
    name = "/" + os.path.relpath(path, top).removeprefix(".")
    return f"{name} {found.st_mode:o} {found.st_nlink} {size} {crc32c(content):08x}"


def list_all(top):
    paths = [top]
    for directory, names, files in os.walk(top):
        paths += [os.path.join(directory, name) for name in names + files]
    print("\n".join(sorted(line(top, path) for path in paths)))


def fill(byte, count, path):
    with open(path, "wb") as file:
        file.write(bytes([int(byte)]) * BLOCK * int(count))
        file.flush()
        os.fsync(file.fileno())


ACTIONS = {
    "fill": fill,
    "pack": pack,
    "upgraded": upgraded,
    "list": list_all,
    "attr": lambda path, name, value: os.setxattr(path, name, value.encode()),
    "unattr": os.removexattr,
}
ACTIONS[sys.argv[1]](*sys.argv[2:])
