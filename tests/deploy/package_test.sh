#!/usr/bin/env bash
# The release archive works on a bare Debian 12: the programs without any package, the client
# library with a compiler and Abseil's headers. As root, with debootstrap and a Debian mirror.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

readonly archive="$PWD/deploy/ckptd-linux-x86_64.tar.gz"
work=$(mktemp -d /tmp/package.XXXXXX)
readonly work bare="$work/bare"
daemon=
finish() {
  [[ -z $daemon ]] || kill -KILL "$daemon" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap finish EXIT

skip() {
  echo "skip a_bare_debian_runs_the_package # $*"
  exit 0
}

failed=0
# check NAME COMMAND...
check() {
  local name=$1
  shift
  if "$@" >"$work/output" 2>&1; then
    echo "ok $name"
  else
    echo "not ok $name"
    tail -n 30 "$work/output"
    failed=1
  fi
}

# Runs a command in the bare system, which has its own /proc and goes with the command.
inside() {
  unshare --mount --pid --fork --kill-child sh -c \
    'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/run" && exec chroot "$0" "$@"' \
    "$bare" env -i PATH=/opt/ckptd/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
}

# The mirror that this machine installs from.
mirror() {
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null |
    grep '^http' | head -n 1
}

unpack() {
  mkdir -p "$bare/opt"
  tar -C "$bare/opt" -xzf "$archive"
  [[ $(ls "$bare/opt") =~ ^ckptd-[0-9.]+-linux-x86_64$ ]] &&
    mv "$bare"/opt/ckptd-* "$bare/opt/ckptd"
}

no_library_is_missing() {
  inside ldd /opt/ckptd/bin/ckptd /opt/ckptd/bin/ckptctl >"$work/ldd" && cat "$work/ldd" &&
    [[ $(grep -c 'libisal.so.2 => /opt/ckptd' "$work/ldd") == 2 ]] &&
    ! grep 'not found' "$work/ldd"
}

newest_glibc_symbol() {
  local newest
  newest=$(objdump -T "$bare"/opt/ckptd/bin/{ckptd,ckptctl} | grep -o 'GLIBC_[0-9.]*' |
    sort -Vu | tail -n 1)
  echo "newest symbol: $newest"
  [[ -n $newest && $(printf '%s\n' GLIBC_2.36 "$newest" | sort -V | tail -n 1) == GLIBC_2.36 ]]
}

start_daemon() {
  inside ckptd --root /srv/checkpoints --socket /tmp/ckptd.sock --node bare 2>"$work/log" &
  daemon=$!
  inside ckptctl --socket /tmp/ckptd.sock health --wait 20s || { cat "$work/log" && return 1; }
}

status_answers() {
  inside ckptctl --socket /tmp/ckptd.sock -o json status | grep '"state": *"serving"'
}

doctor_answers() { inside ckptctl --socket /tmp/ckptd.sock doctor --root /srv/checkpoints; }

install_compiler() {
  cp /etc/resolv.conf "$bare/etc/resolv.conf"
  inside sh -c 'apt-get -q update &&
    apt-get -q install -y --no-install-recommends g++ libabsl-dev pkgconf'
}

example_is_built() {
  inside sh -c 'cd /tmp && export PKG_CONFIG_PATH=/opt/ckptd/lib/pkgconfig &&
    g++ -O1 /opt/ckptd/share/doc/ckptd/readme_example.cc \
      $(pkg-config --cflags --libs ckptd-client) -o example'
}

example_saves_and_loads() {
  inside sh -c 'export CKPTD_SOCKET=/tmp/ckptd.sock; cd /tmp &&
    ./example && test "$(ckptctl latest)" = step-100 &&
    ./example && test "$(ckptctl latest)" = step-200 && ckptctl verify --all'
}

daemon_ends() { kill -TERM "$(pgrep -f -- '--node bare' | tail -n 1)" && wait "$daemon"; }

((EUID == 0)) || skip "needs root, for chroot"
command -v debootstrap >/dev/null || skip "needs debootstrap"
inside_works=$(unshare --mount --pid --fork true 2>&1) || skip "needs namespaces: $inside_works"
[[ -n $(mirror) ]] || skip "no mirror of Debian 12 among this machine's package sources"
if ! debootstrap --variant=minbase bookworm "$bare" "$(mirror)" >"$work/debootstrap" 2>&1; then
  skip "no bare Debian could be made: $(tail -n 1 "$work/debootstrap")"
fi

check the_archive_has_one_folder unpack
[[ $failed == 0 ]] || exit 1
check no_library_is_missing no_library_is_missing
check it_runs_with_the_glibc_of_debian_12 newest_glibc_symbol
check the_daemon_starts start_daemon
check status_answers status_answers
check doctor_answers doctor_answers
check a_compiler_is_installed install_compiler
check the_example_is_built_from_the_archive example_is_built
check the_example_saves_and_loads example_saves_and_loads
check the_daemon_ends_in_order daemon_ends
exit "$failed"
