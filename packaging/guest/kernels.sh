#!/bin/sh
# Runs in a guest with an older kernel; see xtask/src/kernels.rs. "guest: end" is the last line. The disk one is for SFS.

. /guest/checks

programs=$(cat /guest/programs)
PATH=$programs:/usr/sbin:/usr/bin:/sbin:/bin
one=/dev/disk/by-id/virtio-one

fill() {
    cp -a /usr/share/common-licenses "$1/tree" && ln -s tree "$1/link" && setfattr -n user.k -v v "$1/tree" && sync -f "$1/tree"
}

is_equal() {
    diff -r /usr/share/common-licenses "$1/tree" && is "$(readlink "$1/link")" tree &&
        is "$(getfattr --only-values -n user.k "$1/tree")" v
}

# The daemon that serves the volume, and not its monitor.
daemon() {
    grep -lx sfs-mount /proc/[0-9]*/comm 2>/dev/null | cut -d / -f 3 | sort -n | tail -n 1
}

# Kills the daemon 20 times beside programs that write and sync. What they were told is synced must be there.
kills() {
    for worker in 1 2 3; do
        (
            number=0
            while [ ! -e /run/over ]; do
                number=$((number + 1))
                path=/mnt/synced-$worker-$number
                # One that fails is tried under the next number. dd ends with an error if its fsync(2) does.
                if seq "$number" 400 | dd of="$path" conv=fsync 2>>/run/said; then
                    echo "$number" >>/run/synced-$worker
                fi
            done
        ) &
    done
    count=0
    while [ $count -lt 20 ]; do
        sleep "0.$((count % 7 + 2))"
        before=$(daemon)
        kill -9 "$before" || return 1
        tries=0
        while [ -z "$(daemon)" ] || [ "$(daemon)" = "$before" ]; do
            sleep 0.05
            tries=$((tries + 1))
            [ $tries -lt 1200 ] || { echo "no daemon runs"; return 1; }
        done
        stat -f /mnt >/dev/null || return 1
        count=$((count + 1))
    done
    touch /run/over
    wait
    # Only calls that were under way may fail, and in two ways.
    sed -n 's/^dd: .*: //p' /run/said | sort | uniq -c | tee /run/errors
    ! grep -v -e 'Software caused connection abort' -e 'Input/output error' /run/errors
}

are_synced() {
    for worker in 1 2 3; do
        [ -s /run/synced-$worker ] || { echo "worker $worker has synced nothing"; return 1; }
        while read -r number; do
            is "$(cksum <"/mnt/synced-$worker-$number")" "$(seq "$number" 400 | cksum)" || return 1
        done </run/synced-$worker
    done
    echo "$(cat /run/synced-? | wc -l) files"
}

# Runs a test program, whose checks are printed one by one.
tests() {
    for test in $("/guest/tests/$1" --list 2>/dev/null | sed -n 's/: test$//p'); do
        check "$1 $test" "/guest/tests/$1" --exact "$test" --nocapture
        grep -e '^skip' -e ' kills: ' -e '^outcomes' /run/check.out | sed 's/^/  /'
    done
}

stage_1() {
    echo "  $(uname -r), FUSE $(dmesg | sed -n 's/.*fuse: init (API version \(.*\))/\1/p')"
    modprobe fuse
    mkdir -p /mnt
    check "mkfs" sfs-mkfs -q "$one"
    check "mount" sfs-mount "$one" /mnt
    sfs-ctl stat -v /mnt | grep -i transport
    check "fill" fill /mnt
    check "the trees are equal" is_equal /mnt
    check "umount" umount /mnt
    check "fsck" sfs-fsck -n -f "$one"
    check "survive over io_uring is refused" sh -c "! sfs-mount -o survive --transport uring $one /mnt"
    check "mount with survive" sfs-mount -o survive "$one" /mnt
    sfs-ctl stat -v /mnt | grep -i transport
    check "the trees are equal after a mount" is_equal /mnt
    check "20 kills beside syncs" kills
    sed 's/^/  /' /run/check.out
    check "what was synced is there" are_synced
    sed 's/^/  /' /run/check.out
    check "the trees are equal after kills" is_equal /mnt
    check "sfs-umount" sfs-umount /mnt
    check "fsck after kills" sfs-fsck -n -f "$one"
    check "mount without survive" sfs-mount "$one" /mnt
    check "what was synced is there after a mount" are_synced
    check "umount at the end" umount /mnt
    for program in kernel_facts pausing mount_survive; do
        tests $program
    done
    echo "guest: end"
    systemctl poweroff
}

run_stage
