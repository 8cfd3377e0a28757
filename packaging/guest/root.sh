#!/bin/sh
# Runs at every boot in a guest whose root filesystem and /home are SFS; see xtask/src/rooted.rs. "guest: cut" asks for a power cut.
# The guest restarts once, and once more without its kernel if systemd can, and switches itself off at the end.

. /guest/checks

# Prints the processes of the root filesystem, the daemon and its monitor: argv[0] begins with '@', so systemd does not kill them.
processes_of_root() {
    for file in /proc/[0-9]*/cmdline; do
        case "$(tr '\0' ' ' <"$file" 2>/dev/null)" in
        '@sfs-mount '*) basename "${file%/cmdline}" ;;
        esac
    done
}

daemons() {
    is "$(processes_of_root | wc -l)" 2
}

daemon_of_root() {
    for process in $(processes_of_root); do
        [ "$(cat "/proc/$process/comm")" = sfs-monitor ] || echo "$process"
    done
}

# Every program here is on the filesystem whose daemon is killed.
root_survives() {
    for round in 1 2 3; do
        before=$(daemon_of_root)
        kill -KILL "$before"
        echo "$round" >/srv/survived && sync /srv/survived || return 1
        is "$(cat /srv/survived)" "$round" || return 1
        [ "$(daemon_of_root)" != "$before" ] || return 1
    done
    daemons
}

# The installed program is on the filesystem that it goes on with.
root_is_upgraded() {
    before=$(daemon_of_root)
    sfs-ctl upgrade / && echo upgraded >/srv/upgraded && sync /srv/upgraded || return 1
    [ "$(daemon_of_root)" != "$before" ] && daemons
}

# systemd has had /home checked by sfs-fsck, at each start since the kernel's.
home_was_checked() {
    journalctl -b -o cat -u 'systemd-fsck@*' >/run/fscks
    cat /run/fscks
    case "$stage" in
    soft) is "$(grep -c '^/dev/vdb: clean' /run/fscks)" 2 ;;
    *) grep -q '^/dev/vdb: clean' /run/fscks ;;
    esac
}

# systemd starts user space anew, without the kernel, since version 254.
can_restart_softly() {
    version=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
    [ "$version" -ge 254 ]
}

boot_id() {
    cat /proc/sys/kernel/random/boot_id
}

# Says why a unit has failed: on a busy host it may have been its time.
no_unit_has_failed() {
    failed=$(systemctl --failed --no-legend --plain | cut -d ' ' -f 1)
    for unit in $failed; do
        journalctl -b -o cat -u "$unit" | tail -n 5
    done
    is "$failed" ""
}

# What is true after every boot.
common() {
    sed 's/^/  fsck: /' /run/initramfs/fsck.log
    check "$stage: the root filesystem is SFS" is "$(findmnt -n -o FSTYPE /)" fuseblk.sfs
    check "$stage: /home is SFS" is "$(findmnt -n -o FSTYPE --mountpoint /home)" fuseblk.sfs
    check "$stage: the root filesystem is writable" touch /written
    check "$stage: fsck looked at the root filesystem" grep -q /dev/vda /run/initramfs/fsck.log
    check "$stage: fsck looked at /home" home_was_checked
    check "$stage: the daemons are spared at shutdown" daemons
    check "$stage: the unmount is prepared" sh -ec 'test -x /run/initramfs/shutdown; chroot /run/initramfs /bin/sh -c :'
    check "$stage: remounting at boot" is "$(systemctl show -p Result --value systemd-remount-fs.service)" success
    check "$stage: no unit has failed" no_unit_has_failed
}

# Writes on both volumes, and syncs, until the machine ends. Returns once a round is over on both.
load() {
    for dir in /srv /home; do
        rm -f "$dir/round"
        (
            round=0
            while :; do
                round=$((round + 1))
                cp -a /usr/share/common-licenses "$dir/busy" && sync -f "$dir/busy" && rm -rf "$dir/busy"
                echo "$round" >"$dir/round.new" && sync "$dir/round.new" && mv "$dir/round.new" "$dir/round" && sync "$dir"
            done
        ) 2>/dev/null &
    done
    until [ -e /srv/round ] && [ -e /home/round ]; do
        sleep 1
    done
}

# Keeps files that a later boot has to find.
keep() {
    for dir in /srv /home; do
        echo "$1" >"$dir/kept-$1" && sync "$dir/kept-$1" && sync "$dir"
    done
}

kept() {
    for dir in /srv /home; do
        for what in "$@"; do
            is "$(cat "$dir/kept-$what")" "$what" || return 1
        done
    done
}

stage_1() {
    common
    check "sfs-ctl stat of the root" sfs-ctl stat /
    check "chattr" sh -ec 'touch /srv/fixed; chattr +i /srv/fixed; ! rm -f /srv/fixed; chattr -i /srv/fixed; rm /srv/fixed'
    check "suid stays for root" sh -ec 'cp /bin/true /srv/suid; chmod 4755 /srv/suid; echo >>/srv/suid; [ -u /srv/suid ]; rm /srv/suid'
    check "fstrim" fstrim /
    case "$(uname -r)" in
    [1-5].* | 6.[0-9].*) ;; # The kernel does not send requests again.
    *)
        check "the root filesystem survives its daemon" root_survives
        check "sfs-ctl upgrade of the root" root_is_upgraded
        ;;
    esac
    check "kept before a restart" keep restart
    next 2
    load
    systemctl reboot
}

stage_2() {
    common
    check "kept over a restart" kept restart
    if can_restart_softly; then
        check "kept before a soft restart" keep soft
        boot_id >/srv/boot-id && sync /srv/boot-id
        next soft
        load
        systemctl soft-reboot
    else
        wait_for_cut
    fi
}

# The root filesystem and its daemon have stayed, and /home was unmounted and mounted.
stage_soft() {
    common
    check "the kernel goes on" is "$(cat /srv/boot-id)" "$(boot_id)"
    check "kept over a soft restart" kept restart soft
    wait_for_cut
}

wait_for_cut() {
    check "kept before a power cut" keep cut
    next 3
    load
    echo "guest: cut"
    sleep 600
}

stage_3() {
    common
    check "kept over a power cut" kept restart cut
    check "the load left a whole number" sh -ec 'for dir in /srv /home; do [ "$(cat $dir/round)" -gt 0 ]; done'
    check "programs and settings read" sh -c 'find /usr/bin /usr/sbin /etc -xdev -type f -exec cat {} + >/dev/null'
    load
    systemctl poweroff
}

run_stage
sleep 600
