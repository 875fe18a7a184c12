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
# --prefix DIR   where programs go: DIR/bin, DIR/lib/volvox, DIR/share; /usr/local if not given
# --root DIR     a file system to install into, not this one: nothing is started, no user is made
#
# Running it again is an upgrade: programs are replaced, configuration files stay, what runs is
# restarted, and no container is stopped. Needs root, and nothing else but a shell, tar and systemd;
# without systemd, programs and configuration are installed and the rest is said.
set -eu

prefix=/usr/local
root=
from=$(dirname "$0")
action=install
parts=
made=

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
case "$prefix" in /*) ;; *) fail "--prefix $prefix: an absolute path is wanted" ;; esac
[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || fail "it writes to $prefix and /etc: run it as root"
units=$root/etc/systemd/system

# Whether there is a systemd to speak to: not in another root, nor in a plain container.
has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

# A program that runs cannot be written to: the new one takes its name.
place() { # MODE FILE TARGET
    mkdir -p "$(dirname "$root$3")"
    cp "$2" "$root$3.new"
    chmod "$1" "$root$3.new"
    mv -f "$root$3.new" "$root$3"
}

place_unit() { # PART
    mkdir -p "$units"
    sed "s|/usr/bin/|$prefix/bin/|" "$from/systemd/volvox-$1.service" >"$units/volvox-$1.service.new"
    chmod 644 "$units/volvox-$1.service.new"
    mv -f "$units/volvox-$1.service.new" "$units/volvox-$1.service"
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
    if [ -e "$target" ]; then
        if ! cmp -s "$from/etc/$1.toml" "$target"; then
            say "/etc/volvox/$1.toml stays as it is"
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
    if systemctl --quiet is-active "volvox-$1"; then
        systemctl restart "volvox-$1"
    elif ! systemctl --quiet is-enabled "volvox-$1" 2>/dev/null; then
        systemctl enable --now "volvox-$1"
    fi
}

install_part() { # PART
    if [ "$1" = cli ]; then
        place 755 "$from/bin/volvox" "$prefix/bin/volvox"
        place_extras volvox
        say "volvox is in $prefix/bin"
        return
    fi
    place 755 "$from/bin/volvox-$1" "$prefix/bin/volvox-$1"
    if [ "$1" = agent ]; then place 755 "$from/lib/volvox/volvox-shim" "$prefix/lib/volvox/volvox-shim"; fi
    place_extras "volvox-$1"
    place_configuration "$1"
    if [ "$1" = coordinator ]; then make_user; fi
    make_folders "$1"
    place_unit "$1"
    begin_service "$1"
    case "$1" in
    agent) say "to make this machine a cell: volvox-agent join LINE" ;;
    coordinator) say "for the line to run on each cell: volvox-coordinator init" ;;
    esac
}

remove_part() { # PART
    name=volvox-$1
    if [ "$1" = cli ]; then name=volvox; fi
    if [ "$1" != cli ] && has_systemd && [ -e "$units/$name.service" ]; then
        systemctl disable --now "$name" || true
    fi
    if [ "$1" = agent ] && [ -z "$root" ] && [ -d /run/volvox/agent/executor ]; then
        "$prefix/bin/volvox-agent" clean || say "not everything could be taken away: see above"
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
    rm -f "$root$prefix/share/man/man8/$name"*.8
    if [ "$1" = agent ]; then
        rm -f "$root$prefix/lib/volvox/volvox-shim"
        rmdir "$root$prefix/lib/volvox" 2>/dev/null || true
    else
        rm -f "$root/etc/sysusers.d/volvox-coordinator.conf"
    fi
    if has_systemd; then systemctl daemon-reload; fi
    if [ "$action" = remove ]; then
        say "$name is gone. Left are /etc/volvox/$1.toml and /var/lib/volvox/$1; --purge removes both"
        return
    fi
    rm -rf "$root/etc/volvox/$1.toml" "$root/var/lib/volvox/$1"
    if [ -z "$root" ]; then rm -rf "/run/volvox/$1"; fi
    rmdir "$root/etc/volvox" "$root/var/lib/volvox" 2>/dev/null || true
    if [ "$1" = coordinator ] && [ -z "$root" ] && command -v userdel >/dev/null; then
        userdel volvox-coordinator 2>/dev/null || true
    fi
    say "$name is gone, with its configuration and its data"
}

if [ "$action" = install ]; then
    if [ -f "$from" ]; then
        made=$(mktemp -d)
        tar -xzf "$from" -C "$made" || fail "$from cannot be unpacked"
        from=$(echo "$made"/volvox-*)
    fi
    [ -x "$from/bin/volvox-agent" ] || fail "$from is no unpacked tar of Volvox: see --from"
fi
for part in $parts; do
    if [ "$action" = install ]; then install_part "$part"; else remove_part "$part"; fi
done
