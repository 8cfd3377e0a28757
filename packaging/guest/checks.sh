# Part of the scripts that run in guests: checks, and the stages of the boots. A script sources it, defines the functions stage_1, stage_2
# and so on, and calls run_stage. Each check prints "guest: ok NAME" or "guest: failed NAME".

check() {
    name=$1
    shift
    if "$@" >/run/check.out 2>&1; then
        echo "guest: ok $name"
    else
        echo "  status $? of: $*"
        sed 's/^/  /' /run/check.out
        echo "guest: failed $name"
    fi
}

is() {
    [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }
}

# Sets the stage that the next boot runs, durably.
next() {
    echo "$1" >/guest/stage && sync /guest/stage
}

# Runs the stage of this boot.
run_stage() {
    # Output of the host's console is slow until the boot is over.
    systemctl is-system-running --wait >/dev/null 2>&1
    stage=$(cat /guest/stage 2>/dev/null || echo 1)
    echo "  boot $stage: $(systemctl is-system-running), $(systemctl --failed --no-legend | tr '\n' ';')"
    "stage_$stage"
}
