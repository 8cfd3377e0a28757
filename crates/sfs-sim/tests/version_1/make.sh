#!/bin/sh
# Makes the images of format version 1 in this directory, with the programs of the last commit that wrote this version (fab95bc).
#
#     PROGRAMS=DIRECTORY ./make.sh
#
# Needs root, FUSE and python3. Each image has 32 segments of 128 KiB:
#
#   clean   unmounted
#   log     killed: after its checkpoint the log has deltas of every kind except Map
#   placed  killed, on a volume with data in place: its log also has deltas of kind Map
#
# NAME.image is the packed image (pack.py), and NAME.superblock its packed superblock after an upgrade to version 2. NAME.list
# lists the content: a line for each path, with its mode, link count and size, and the CRC-32C of its content (or target)
# and extended attributes.
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

# kill_v1 IMAGE NAME: syncs, kills the daemon, and packs the image that the crash left.
kill_v1() {
    sync -f "$dir"
    python3 "$here/pack.py" list "$dir" > "$here/$2.list"
    kill -9 "$daemon"
    wait "$daemon" || true
    umount "$dir"
    python3 "$here/pack.py" pack "$1" > "$here/$2.image"
    python3 "$here/pack.py" upgraded "$1" > "$here/$2.superblock"
}

fill() { # BYTE COUNT FILE: writes and syncs COUNT blocks, each filled with BYTE
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
    # The overwrites leave segments without live blocks, which are released.
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

for name in log placed; do # clean has the same superblock as log.
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
