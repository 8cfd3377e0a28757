#!/bin/sh
# Runs in a guest at every boot: installs the package, and uses SFS as one uses ext4, which stands beside it.
# "guest: cut" asks for a power cut, "guest: end" is the last line. Disks: one and two are for SFS, old is for ext4.

. /guest/checks

one=/dev/disk/by-id/virtio-one
two=/dev/disk/by-id/virtio-two
old=/dev/disk/by-id/virtio-old
uuid=5f5e1000-1111-2222-3333-444455556666

# Prints type, label and UUID of a disk by lsblk.
seen() {
    lsblk -n -o FSTYPE,LABEL,UUID "$1" | tr -s ' '
}

type_at() {
    findmnt -n -o FSTYPE --mountpoint "$1"
}

are_mounted() {
    is "$(type_at /srv/one)" fuseblk.sfs && is "$(type_at /srv/two)" fuseblk.sfs && is "$(type_at /srv/old)" ext4
}

none_is_mounted() {
    ! mountpoint -q /srv/one && ! mountpoint -q /srv/two && ! mountpoint -q /srv/old
}

# The same tree on SFS and on ext4.
fill() {
    for dir in /srv/one /srv/two /srv/old; do
        mkdir -p "$dir/a/b" && cp -a /usr/share/common-licenses "$dir/a/" && ln -s a/b "$dir/link" &&
            setfattr -n user.k -v v "$dir/a" || return 1
    done
}

are_equal() {
    diff -r /srv/old/a /srv/one/a && diff -r /srv/old/a /srv/two/a && is "$(readlink /srv/one/link)" a/b &&
        is "$(getfattr --only-values -n user.k /srv/two/a)" v
}

# systemd has checked the volumes with 2 in the last field of their lines before it mounted them, those with SFS by sfs-fsck: the
# result of the units does not tell, as systemd takes it for a success if fsck(8) runs fsck.ext2, which fails.
were_checked() {
    for unit in $(systemctl list-units --all --plain --no-legend 'systemd-fsck@*' | cut -d ' ' -f 1); do
        systemctl show -p Result --value "$unit"
    done | sort | uniq -c | tr -s ' ' >/tmp/units
    is "$(cat /tmp/units)" " 3 success" || return 1
    journalctl -b -o cat -u 'systemd-fsck@*' >/tmp/fscks
    cat /tmp/fscks
    for device in $one $two; do
        grep -q "^$(readlink -f $device): clean" /tmp/fscks || return 1
    done
    # The line of fsck.ext4.
    grep -q '^old: clean' /tmp/fscks && ! grep -q 'fsck failed' /tmp/fscks
}

# The unit sfs-mount@ of a user without any right, run by the user's own systemd.
user_mounts() {
    id=$(id -u tester) || return 1
    as="runuser -u tester -- env XDG_RUNTIME_DIR=/run/user/$id HOME=/home/tester"
    $as sh -ec 'mkdir -p ~/.local/share/sfs; cd ~/.local/share/sfs; sfs-mkfs -q --size 32M card.img' || return 1
    systemctl start "user@$id.service" && $as systemctl --user start sfs-mount@card.service || return 1
    for try in 1 2 3 4 5 6 7 8 9 10; do
        mountpoint -q /home/tester/sfs/card && break
        sleep 1
    done
    $as sh -ec 'echo mine >~/sfs/card/file; [ "$(stat -c %U ~/sfs/card/file)" = tester ]' || return 1
    ! cat /home/tester/sfs/card/file || return 1
    $as systemctl --user stop sfs-mount@card.service || return 1
    is "$($as systemctl --user show -p Result --value sfs-mount@card.service)" success &&
        ! mountpoint -q /home/tester/sfs/card
}

stage_1() {
    # Files before the installation, to compare with those after a purge.
    useradd -m tester
    list_files >/guest/before
    check "apt install" apt-get install -y -o Dpkg::Use-Pty=0 /guest/sfs-tools.deb
    check "mkfs.sfs by mkfs(8)" mkfs -t sfs -U "$uuid" -L card "$one"
    check "mkfs.sfs with a label of two words" mkfs.sfs -q -L "two words" "$two"
    check "mkfs.ext4" mkfs.ext4 -q -L old "$old"
    check "mkfs refuses a volume" sh -c "! mkfs.sfs $one"
    udevadm settle
    check "lsblk -f" is "$(seen $one)" "sfs card $uuid"
    check "lsblk -f of two words" is "$(lsblk -n -o FSTYPE,LABEL $two | tr -s ' ')" "sfs two words"
    check "by-uuid" is "$(readlink -f /dev/disk/by-uuid/$uuid)" "$(readlink -f $one)"
    check "by-label" is "$(readlink -f '/dev/disk/by-label/two\x20words')" "$(readlink -f $two)"
    mkdir -p /srv/one /srv/two /srv/old
    # Without -t, mount(8) asks libblkid for the type of a line that is not in fstab.
    check "mount -t sfs UUID=" mount -t sfs "UUID=$uuid" /srv/one
    check "umount" umount /srv/one
    cat >>/etc/fstab <<END
UUID=$uuid /srv/one sfs defaults 0 2
LABEL="two\\040words" /srv/two sfs noatime,nofail,x-systemd.device-timeout=30 0 2
LABEL=old /srv/old ext4 defaults 0 2
END
    systemctl daemon-reload
    check "mount -a" mount -a
    check "all are mounted" are_mounted
    check "fill" fill
    check "the trees are equal" are_equal
    check "umount -a -t" sh -c 'umount /srv/one /srv/two /srv/old'
    check "fsck -A" fsck -A -R -a
    check "fsck -A, in full" fsck -A -R -f -y
    check "fsck -t, in full" fsck -t sfs -f -y "$two"
    check "mount -a again" mount -a
    check "the trees are equal after a mount" are_equal
    next 2
    sync
    systemctl reboot
}

stage_2() {
    check "all are mounted at boot" are_mounted
    check "those to be checked were checked at boot" were_checked
    check "the trees are equal after a reboot" are_equal
    check "remount read-only" mount -o remount,ro /srv/one
    check "nothing can be written" sh -c '! touch /srv/one/x'
    check "remount read-write" mount -o remount,rw /srv/one
    check "a user mounts an image at login" user_mounts
    check "the user's image is sound" runuser -u tester -- sfs-fsck -n /home/tester/.local/share/sfs/card.img
    for dir in /srv/one /srv/two /srv/old; do
        echo synced >"$dir/synced" && sync "$dir/synced"
    done
    next 3
    # Until the power is cut, something is being written.
    for dir in /srv/one /srv/two; do
        (while :; do cp -a /usr/share/common-licenses "$dir/busy" && rm -rf "$dir/busy"; done) 2>/dev/null &
    done
    sleep 2
    echo "guest: cut"
    sleep 600
}

stage_3() {
    check "all are mounted after a power cut" are_mounted
    check "those to be checked were checked after a power cut" were_checked
    check "the trees are equal after a power cut" are_equal
    check "synced files are there" sh -c 'cat /srv/one/synced /srv/two/synced /srv/old/synced | sort -u | grep -qx synced'
    check "sfs-umount" sfs-umount /srv/one
    check "umount, ext4 too" umount /srv/two /srv/old
    check "fsck -A, in full, after a power cut" fsck -A -R -f -y
    check "fsck -t, in full, after a power cut" fsck -t sfs -f -y "$two"
    check "systemctl start of a mount unit" systemctl start srv-one.mount
    check "a timer of scrubs is enabled" systemctl enable --now sfs-scrub@srv-one.timer
    check "a scrub" systemctl start sfs-scrub@srv-one.service
    check "systemctl stop of a mount unit" systemctl stop srv-one.mount
    check "nothing is mounted" none_is_mounted
    check "apt purge" apt-get purge -y -o Dpkg::Use-Pty=0 sfs-tools
    udevadm settle
    check "no timer is left" sh -c '! systemctl is-active sfs-scrub@srv-one.timer && [ -z "$(find /etc/systemd /var/lib/systemd/timers -name "*sfs-scrub*")" ]'
    check "no link is left" sh -c "! [ -e /dev/disk/by-uuid/$uuid ]"
    check "mount says that the type is unknown" sh -c 'LC_ALL=C mount -t sfs /dev/disk/by-id/virtio-one /srv/one 2>&1 | grep -q "unknown filesystem type"'
    check "fsck -A passes over it" fsck -A -R -a
    list_files >/tmp/after
    check "no file is left" diff /guest/before /tmp/after
    next 4
    sync
    echo "guest: end"
    systemctl poweroff
}

list_files() {
    find / -xdev \( -path /srv -o -path /guest -o -path /tmp -o -path /var/tmp -o -path /home -o -path /var/log -o -path /var/lib/dpkg -o -path /var/cache \
        -o -path /var/lib/systemd -o -path /var/lib/apt -o -path /etc/fstab \) -prune -o -print | sort
}

run_stage
