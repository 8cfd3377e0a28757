#!/bin/sh
# Makes the images of version 1 in this directory, with the programs of the last commit that wrote it (fab95bc).
#
#     PROGRAMS=DIRECTORY ./make.sh
#
# Needs root, FUSE and python3. Each image has 32 segments of 128 KiB:
#
#   clean   unmounted
#   log     killed: past its checkpoint the log has deltas of every kind but Map
#   placed  the same on a volume whose data is overwritten in place: with Map
#
# NAME.image is the image, packed (pack.py); NAME.superblock its superblock as version 2 has it; NAME.list what is in it: a line for each name, with its kind, mode,
# links, size, and the CRC-32C of its content, of its target or of its extended attributes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
dir=$work/mount
mkdir "$dir"
trap 'umount "$dir" 2>/dev/null || true; rm -r "$work"' EXIT

mount_v1() {
    "$PROGRAMS/sfs-mount" --foreground -o checkpoint=3600 "$1" "$dir" &
    daemon=$!
    until mountpoint -q "$dir"; do sleep 0.1; done
}

unmount_v1() {
    "$PROGRAMS/sfs-umount" "$dir"
    wait "$daemon"
}

# kill_v1 IMAGE NAME: the device as a crash after a sync leaves it.
kill_v1() {
    sync -f "$dir"
    python3 "$here/pack.py" list "$dir" > "$here/$2.list"
    kill -9 "$daemon"
    wait "$daemon" || true
    umount "$dir"
    python3 "$here/pack.py" pack "$1" > "$here/$2.image"
    python3 "$here/pack.py" upgraded "$1" > "$here/$2.superblock"
}

fill() { # BYTE COUNT FILE: blocks of one byte each, synced
    python3 "$here/pack.py" fill "$1" "$2" "$3"
}

populate() {
    mkdir "$dir/sub" "$dir/sub/deep" "$dir/empty"
    echo "a few bytes" > "$dir/small"
    fill 1 20 "$dir/large"
    fill 2 3 "$dir/sub/three"
    printf tail >> "$dir/sub/three"
    truncate -s 200000 "$dir/sub/holes"
    printf end >> "$dir/sub/holes"
    ln "$dir/small" "$dir/sub/deep/link"
    ln -s ../large "$dir/sub/symlink"
    mkfifo "$dir/pipe"
    chmod 4711 "$dir/sub/three"
    python3 "$here/pack.py" attr "$dir/large" user.colour green
    python3 "$here/pack.py" attr "$dir/sub" user.long "$(printf '%02000d' 7)"
    for no in $(seq 40); do echo "$no" > "$dir/sub/deep/file-$no"; done
}

change() {
    # Segments run empty, and are released.
    for round in 11 12 13 14 15 16 17 18 19 20; do
        fill $round 150 "$dir/often"
    done
    fill 21 1 "$dir/often"
    fill 3 5 "$dir/new"
    fill 4 2 "$work/two"
    dd if="$work/two" of="$dir/large" bs=4096 seek=7 conv=notrunc,fsync status=none
    truncate -s 9000 "$dir/sub/three"
    rm "$dir/sub/deep/file-7" "$dir/pipe"
    mv "$dir/sub/deep/file-8" "$dir/empty/renamed"
    python3 "$here/pack.py" unattr "$dir/large" user.colour
    python3 "$here/pack.py" attr "$dir/small" user.taste sour
}

for name in log placed; do # The superblock of clean is that of log.
    image=$work/$name
    placement=log
    [ $name = placed ] && placement=greedy-space
    "$PROGRAMS/sfs-mkfs" -q -L "version 1" -U 00112233-4455-6677-8899-aabbccddeeff --segment-size 128K \
        --placement $placement --size 4395008 "$image"
    mount_v1 "$image"
    populate
    [ $name = log ] && python3 "$here/pack.py" list "$dir" > "$here/clean.list"
    unmount_v1
    [ $name = log ] && python3 "$here/pack.py" pack "$image" > "$here/clean.image"
    mount_v1 "$image"
    change
    kill_v1 "$image" $name
    [ -n "${KEEP:-}" ] && cp "$image" "$KEEP/$name"
done
[ -z "${KEEP:-}" ] || ls -l "$KEEP"
