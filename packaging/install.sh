#!/bin/sh
# Installs Volvox from its static tar on a distribution without packages for it, upgrades it, and takes
# it away again. For Debian and its kin use the packages.
#
#   ./install.sh agent                           in the unpacked tar: this machine will be a cell
#   ./install.sh coordinator cli                 or several of agent, coordinator, cli
#   ./install.sh --from volvox-....tar.gz agent  from the tar as it is
#   ./install.sh --remove agent                  says what it leaves
#   ./install.sh --purge agent                   leaves nothing
#
# --prefix DIR   where programs go: DIR/bin, DIR/lib/volvox, DIR/share; /usr/local if not given, and for
#                a removal where the unit says that they are
# --root DIR     a file system to install into, not this one: nothing is started, no user is made
#
# Running it again is an upgrade: programs are replaced, configuration files stay, what runs is
# restarted, and no container is stopped. Needs root, and nothing else but a shell, tar and systemd;
# without systemd, programs and configuration are installed and the rest is said. A tar beside which its
# .sha256 lies is checked against it.
set -eu

prefix=
root=
from=$(dirname "$0")
action=install
parts=
made=
failed=

say() { echo "install: $*"; }
fail() {
    echo "install: $*" >&2
    exit 2
}
usage() {
    sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
    exit "$1"
}
clean_up() { if [ -n "$made" ]; then rm -rf "$made"; fi; }
trap clean_up EXIT

while [ $# -gt 0 ]; do
    case "$1" in
    --from) from=${2:?} && shift ;;
    --prefix) prefix=${2:?} && shift ;;
    --root) root=${2:?} && shift ;;
    --remove) action=remove ;;
    --purge) action=purge ;;
    -h | --help) usage 0 ;;
    agent | coordinator | cli) parts="$parts $1" ;;
    *) fail "$1: agent, coordinator or cli is wanted, or see --help" ;;
    esac
    shift
done
[ -n "$parts" ] || usage 2
units=$root/etc/systemd/system

# What is taken away is where it was put: its unit says where that is.
prefix_of() { # PART
    found=$(sed -n 's|^ExecStart=\(/.*\)/bin/volvox-.*|\1|p' "$units/volvox-$1.service" 2>/dev/null | head -n 1)
    echo "${found:-/usr/local}"
}
given=$prefix
[ -n "$prefix" ] || prefix=/usr/local
case "$prefix" in /*) ;; *) fail "--prefix $prefix: an absolute path is wanted" ;; esac
[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || fail "it writes to $prefix and /etc: run it as root"

# Whether there is a systemd to speak to: not in another root, nor in a plain container.
has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

# Two owners of one service would undo each other's work.
refuse_packaged() { # PART
    name=volvox-$1
    if [ "$1" = cli ]; then name=volvox; fi
    if [ -z "$root" ] && command -v dpkg-query >/dev/null &&
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q ' installed$'; then
        fail "$name is here as a Debian package: use apt for it, or remove that first"
    fi
}

# A program that runs cannot be written to: the new one takes its name.
place() { # MODE FILE TARGET
    mkdir -p "$(dirname "$root$3")"
    cp "$2" "$root$3.new"
    chmod "$1" "$root$3.new"
    mv -f "$root$3.new" "$root$3"
}

place_units() { # PART
    mkdir -p "$units"
    for unit in "$from/systemd/volvox-$1.service" "$from/systemd/volvox-$1"-*.*; do
        [ -f "$unit" ] || continue
        name=${unit##*/}
        sed "s|/usr/bin/|$prefix/bin/|" "$unit" >"$units/$name.new"
        chmod 644 "$units/$name.new"
        mv -f "$units/$name.new" "$units/$name"
    done
}

place_extras() { # PROGRAM
    for page in "$from/share/man/$1/"*; do
        place 644 "$page" "$prefix/share/man/man${page##*.}/${page##*/}"
    done
    place 644 "$from/share/completions/bash/$1" "$prefix/share/bash-completion/completions/$1"
    place 644 "$from/share/completions/zsh/_$1" "$prefix/share/zsh/site-functions/_$1"
    place 644 "$from/share/completions/fish/$1.fish" "$prefix/share/fish/vendor_completions.d/$1.fish"
}

place_configuration() { # PART
    target=$root/etc/volvox/$1.toml
    place 644 "$from/etc/$1.toml" "$prefix/share/volvox/$1.toml"
    if [ -e "$target" ]; then
        if ! cmp -s "$from/etc/$1.toml" "$target"; then
            say "/etc/volvox/$1.toml stays as it is. What this release has there:"
            say "  diff -u /etc/volvox/$1.toml $prefix/share/volvox/$1.toml"
        fi
    else
        place 644 "$from/etc/$1.toml" "/etc/volvox/$1.toml"
    fi
}

make_user() {
    place 644 "$from/systemd/volvox-coordinator.sysusers" /etc/sysusers.d/volvox-coordinator.conf
    if [ -n "$root" ] || id volvox-coordinator >/dev/null 2>&1; then return; fi
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers volvox-coordinator.conf
    elif command -v useradd >/dev/null; then
        useradd --system --user-group --no-create-home --home-dir /var/lib/volvox/coordinator \
            --shell /usr/sbin/nologin volvox-coordinator
    else
        fail "neither systemd-sysusers nor useradd is here: make the user volvox-coordinator first"
    fi
}

make_folders() { # PART
    mkdir -p "$root/var/lib/volvox"
    chmod 755 "$root/var/lib/volvox"
    if [ "$1" = coordinator ] && [ ! -d "$root/var/lib/volvox/coordinator" ]; then
        mkdir -m 700 "$root/var/lib/volvox/coordinator"
        if [ -z "$root" ]; then
            chown volvox-coordinator:volvox-coordinator /var/lib/volvox/coordinator
        fi
    fi
}

begin_service() { # PART
    if ! has_systemd; then
        if [ -z "$root" ]; then say "no systemd here: start volvox-$1 yourself, see its unit in $units"; fi
        return
    fi
    systemctl daemon-reload
    # A restart evacuates nothing: the unit says which signal it is.
    if systemctl --quiet is-active "volvox-$1"; then
        systemctl restart "volvox-$1" || not_started "$1"
    elif [ -n "$is_new" ] || ! systemctl --quiet is-enabled "volvox-$1" 2>/dev/null; then
        # By force: a package that was removed and not purged leaves links to a unit that is gone.
        systemctl enable --force "volvox-$1"
        systemctl start "volvox-$1" || not_started "$1"
    fi
    # Once: whoever switched it off later does not want it.
    if [ "$1" = coordinator ] && [ -n "$has_new_timer" ]; then
        systemctl enable --force --now volvox-coordinator-backup.timer || not_started coordinator-backup
    fi
    if [ "$1" = coordinator ] && ! systemctl --quiet is-enabled volvox-coordinator-backup.timer 2>/dev/null; then
        say "the daily backup is off. To switch it on: systemctl enable --now volvox-coordinator-backup.timer"
    fi
}

# The other parts are installed all the same.
not_started() { # PART
    say "volvox-$1 did not start: journalctl -u volvox-$1" >&2
    failed="$failed $1"
}

install_part() { # PART
    is_new=
    has_new_timer=
    if [ ! -e "$units/volvox-$1.service" ]; then is_new=yes; fi
    if [ ! -e "$units/volvox-$1-backup.timer" ]; then has_new_timer=yes; fi
    if [ "$1" = cli ]; then
        place 755 "$from/bin/volvox" "$prefix/bin/volvox"
        place_extras volvox
        say "the command line: $prefix/bin/volvox"
        return
    fi
    place 755 "$from/bin/volvox-$1" "$prefix/bin/volvox-$1"
    if [ "$1" = agent ]; then place 755 "$from/lib/volvox/volvox-shim" "$prefix/lib/volvox/volvox-shim"; fi
    place_extras "volvox-$1"
    place_configuration "$1"
    if [ "$1" = coordinator ]; then make_user; fi
    make_folders "$1"
    place_units "$1"
    begin_service "$1"
    case "$1" in
    # With the whole path: sudo's own does not have /usr/local/bin everywhere.
    agent) say "to make this machine a cell: sudo $prefix/bin/volvox-agent join LINE" ;;
    coordinator) say "for the line to run on each cell: sudo $prefix/bin/volvox-coordinator init" ;;
    esac
}

# Deletes what is in a folder, and the folder if it can: it may be a mount point, or lead elsewhere.
delete() { # FOLDER
    [ -d "$1" ] || return 0
    find "$1/" -xdev -mindepth 1 -delete || true
    rmdir "$1" 2>/dev/null || rm -f "$1" 2>/dev/null || true
    if [ -d "$1" ]; then say "$1 is left: it, or something in it, is a mount point" >&2; fi
}

remove_part() { # PART
    name=volvox-$1
    if [ "$1" = cli ]; then name=volvox; fi
    if [ -z "$given" ] && [ "$1" != cli ]; then prefix=$(prefix_of "$1"); fi
    if [ "$1" != cli ] && has_systemd && [ -e "$units/$name.service" ]; then
        if [ -e "$units/$name-backup.timer" ]; then
            systemctl disable --now "$name-backup.timer" || true
            # A backup at work would write to what is taken away.
            systemctl stop "$name-backup.service" || true
        fi
        systemctl disable --now "$name" || true
    fi
    if [ "$1" = agent ] && [ -z "$root" ] && [ -f "$prefix/bin/volvox-agent" ] &&
        ! "$prefix/bin/volvox-agent" clean; then
        if [ -e /etc/volvox/agent.toml ] &&
            ! "$prefix/bin/volvox-agent" config --check /etc/volvox/agent.toml >/dev/null 2>&1; then
            fail "/etc/volvox/agent.toml is faulty, see above, and only it says where the containers are: mend it and try again"
        fi
        fail "not everything could be taken away, see above, so the program stays. Mend the cause and try again"
    fi
    if [ "$action" = purge ] && [ -z "$root" ] && grep -q " /var/lib/volvox/$1/" /proc/mounts; then
        fail "something is mounted below /var/lib/volvox/$1: unmount it first (grep volvox /proc/mounts)"
    fi
    rm -f "$root$prefix/bin/$name" "$root$prefix/share/bash-completion/completions/$name" \
        "$root$prefix/share/zsh/site-functions/_$name" \
        "$root$prefix/share/fish/vendor_completions.d/$name.fish" "$units/$name.service"
    if [ "$1" = cli ]; then
        # Not those of the other programs, which begin with the same name.
        for page in "$root$prefix"/share/man/man1/volvox.1 "$root$prefix"/share/man/man1/volvox-*.1; do
            rm -f "$page"
        done
        say "volvox is gone"
        return
    fi
    rm -f "$root$prefix/share/man/man8/$name"*.8 "$root$prefix/share/volvox/$1.toml"
    rmdir "$root$prefix/share/volvox" 2>/dev/null || true
    if [ "$1" = agent ]; then
        rm -f "$root$prefix/lib/volvox/volvox-shim"
        rmdir "$root$prefix/lib/volvox" 2>/dev/null || true
    else
        rm -f "$root/etc/sysusers.d/volvox-coordinator.conf" "$units/$name-backup.service" "$units/$name-backup.timer"
    fi
    if has_systemd; then systemctl daemon-reload; fi
    if [ "$action" = remove ]; then
        say "$name is gone. Left are /etc/volvox/$1.toml and /var/lib/volvox/$1; --purge removes both"
        return
    fi
    rm -f "$root/etc/volvox/$1.toml"
    delete "$root/var/lib/volvox/$1"
    if [ -z "$root" ]; then
        delete "/run/volvox/$1"
        rmdir /run/volvox 2>/dev/null || true
    fi
    rmdir "$root/etc/volvox" "$root/var/lib/volvox" 2>/dev/null || true
    # systemd's own note of when the timer went off last.
    rm -f "$root/var/lib/systemd/timers/stamp-$name-backup.timer"
    if [ "$1" = coordinator ] && [ -z "$root" ] && command -v userdel >/dev/null; then
        userdel volvox-coordinator 2>/dev/null || true
    fi
    say "$name is gone, with its configuration and its data"
}

if [ "$action" = install ]; then
    if [ -f "$from" ]; then
        if [ -f "$from.sha256" ]; then
            (cd "$(dirname "$from")" && sha256sum -c --status "$(basename "$from").sha256") ||
                fail "$from is not what $from.sha256 says: fetch it again"
        fi
        made=$(mktemp -d)
        tar -xzf "$from" -C "$made" || fail "$from cannot be unpacked"
        from=$(echo "$made"/volvox-*)
    fi
    # Not -x: a folder for temporary files may be mounted without leave to run what is in it.
    [ -f "$from/bin/volvox-agent" ] || fail "$from is no unpacked tar of Volvox: see --from"
    machine=$(cat "$from/machine" 2>/dev/null || uname -m)
    [ -n "$root" ] || [ "$machine" = "$(uname -m)" ] ||
        fail "this tar is for $machine, and this machine is $(uname -m)"
    # What packaging/tar has to say of what it made.
    if [ -f "$from/CAUTION" ]; then sed 's/^/install: CAUTION: /' "$from/CAUTION" >&2; fi
fi
for part in $parts; do refuse_packaged "$part"; done
for part in $parts; do
    if [ "$action" = install ]; then install_part "$part"; else remove_part "$part"; fi
done
[ -z "$failed" ] || fail "installed, but not started:$failed"
