#!/usr/bin/env bash
# What deploy/demo is made of: what it prints, its daemon, its ranks. Read by deploy/demo, which
# sets $work $root $socket $bin $python $model $node.
set -euo pipefail

readonly ranks=4
bold='' green='' red='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
fi

# --- printing

acts=0 passed=0 failed=0

act() {
  acts=$((acts + 1))
  printf '\n%s%d. %s%s\n' "$bold" "$acts" "$*" "$plain"
}

say() { printf '   %s\n' "$@" | sed 's/ *$//'; }

# show_output COMMAND: shows what a command printed, which comes on standard input.
show_output() {
  printf '\n   %s$ %s%s\n' "$bold" "$1" "$plain"
  sed -e "s|$work/||g" -e 's/^./     &/'
  echo
}

# Runs ckptctl and shows what it prints.
show() { ckptctl "$@" 2>&1 | show_output "ckptctl $*"; }
show_offline() { ckptctl_offline "$@" 2>&1 | show_output "ckptctl --root root $*"; }

pass() {
  passed=$((passed + 1))
  printf '   %sok%s      %s\n' "$green" "$plain" "$*"
}

fail() {
  failed=$((failed + 1))
  printf '   %sFAILED%s  %s\n' "$red" "$plain" "$*"
}

# expect TEXT COMMAND...: one comparison, passed if the command succeeds.
expect() {
  local text=$1
  shift
  if "$@"; then pass "$text"; else fail "$text"; fi
}

# For what makes it pointless to go on.
die() {
  fail "$*"
  for log in "$work"/*.log; do
    [[ -s $log ]] || continue
    echo "--- the end of ${log##*/}" >&2
    tail -n 20 "$log" >&2
  done
  exit 1
}

seconds() {
  awk -v s="$1" 'BEGIN { if (s < 1) printf "%.0f ms", s * 1000; else printf "%.1f s", s }'
}
seconds_range() {
  awk -v a="$1" -v b="$2" 'BEGIN { printf "%.0f to %.0f ms", a * 1000, b * 1000 }'
}
megabytes() { awk -v b="$1" 'BEGIN { printf "%.1f MB", b / 1e6 }'; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }

# until_true SECONDS WHAT COMMAND...: repeats the command until it succeeds.
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < deadline)) || die "in vain waited for: $what"
    sleep 0.02
  done
}

# --- the daemon

daemon=

# start_daemon server/ckptd|tests/support/ckptd_faulty [FLAG...]
start_daemon() {
  local program=$1
  shift
  "$bin/$program" --socket "$socket" --root "$root" --node "$node" --log-format text "$@" \
    >>"$work/ckptd.log" 2>&1 &
  daemon=$!
  ckptctl health --wait 10s >/dev/null || die "the daemon does not answer"
}

stop_daemon() {
  kill -TERM "$daemon"
  wait "$daemon" || die "the daemon ended with exit code $?"
  daemon=
}

# Bash reports the end of a killed job; kill_now keeps that off the screen.
kill_now() {
  kill -KILL "$@"
  wait "$@" || true
} 2>/dev/null

ckptctl() { "$bin/client/cli/ckptctl" --socket "$socket" "$@"; }
ckptctl_offline() { "$bin/client/cli/ckptctl" --root "$root" "$@"; }

# slow_disk BYTES: so many a second from now on; 0: as fast as it is.
slow_disk() {
  local plan=
  (($1 == 0)) || plan="write=rate:$1"
  echo "$plan" >"$work/faults.new"
  mv "$work/faults.new" "$work/faults"
}

# The line that `ckptctl list` has of a checkpoint or an attempt.
listed() { ckptctl list | grep -E "^$1 " || true; }

# written_percent ID: how much of an attempt in flight is on disk.
written_percent() {
  local percent
  percent=$(listed "$1" | sed -n 's/.*written \([0-9]*\)%.*/\1/p')
  echo "${percent:-0}"
}
is_written() { (($(written_percent "$1") >= $2)); }

attempt_in_flight() { ls "$root/$job/attempts"; }
attempt_of() { ckptctl -o json show "$1" | sed -n 's/^ *"attempt": "\(.*\)",*$/\1/p'; }

# --- ranks

rank_pid=() rank_in=() rank_sent=()

# start_rank RANK INCARNATION: it does what is sent to it.
start_rank() {
  local fifo="$work/rank-$1.in" fd
  rm -f "$fifo"
  mkfifo "$fifo"
  "$bin/client/examples/trainer" "${state[@]}" --socket "$socket" --job "$job" --rank "$1" \
    --world-size "$ranks" --incarnation "$2" --stdin \
    <"$fifo" >"$work/rank-$1.out" 2>>"$work/trainers.log" &
  rank_pid[$1]=$!
  exec {fd}>"$fifo"
  rank_in[$1]=$fd
  rank_sent[$1]=0
}

start_ranks() {
  local rank
  for ((rank = 0; rank < ranks; ++rank)); do start_rank "$rank" "$1"; done
}

is_running() { kill -0 "$1" 2>/dev/null; }

# send RANKS COMMAND: to each rank of the list; nobody waits.
send() {
  local rank
  for rank in $1; do
    is_running "${rank_pid[$rank]}" || die "rank $rank is not running any more"
    printf '%s\n' "$2" >&"${rank_in[$rank]}"
    rank_sent[$rank]=$((rank_sent[rank] + 1))
  done
}

answers() { grep '^{"cmd"' "$work/rank-$1.out" || true; }
has_answered() { (($(answers "$1" | wc -l) >= rank_sent[$1])); }
last_answer() { answers "$1" | tail -n 1; }

# ask RANKS COMMAND: sends it and waits until every rank has done it; it must have worked.
ask() {
  local rank
  send "$1" "$2"
  for rank in $1; do
    until_true 60 "the answer of rank $rank to: $2" has_answered "$rank"
    [[ $(last_answer "$rank") == *'"ok":true'* ]] || die "rank $rank: $(last_answer "$rank")"
  done
}

# event RANK NAME [ID]: the last line about it.
event() { grep "^{\"event\":\"$2\"${3:+,\"id\":\"$3\"}" "$work/rank-$1.out" | tail -n 1; }
has_event() { [[ -n $(event "$@") ]]; }

# await_event RANKS NAME ID
await_event() {
  local rank
  for rank in $1; do
    until_true 120 "rank $rank to see $3 $2" has_event "$rank" "$2" "$3"
  done
}

# field NAME LINE: a value of a JSON line of a trainer.
field() {
  local pattern="\"$1\":\"?([^,}\"]*)"
  [[ $2 =~ $pattern ]] && echo "${BASH_REMATCH[1]}"
}

# fields NAME LINE...: the values of a field, the smallest first.
fields() {
  local name=$1 line
  shift
  for line in "$@"; do field "$name" "$line"; done | sort -g
}
fastest() { fields "$@" | sed -n 1p; }
slowest() { fields "$@" | tail -n 1; }

close_ranks() {
  local rank
  ask "$1" close
  send "$1" "exit 0"
  for rank in $1; do
    wait "${rank_pid[$rank]}" || die "rank $rank ended with exit code $?"
    forget_rank "$rank"
  done
}

forget_rank() {
  local fd=${rank_in[$1]}
  exec {fd}>&-
  unset "rank_pid[$1]" "rank_in[$1]"
}

# --- bytes

# compare ID...: the shards of checkpoints with the model's bytes and the step.
compare() {
  local verdict id text count=0
  while read -r verdict id text; do
    count=$((count + 1))
    if [[ $verdict == ok ]]; then
      pass "$id: every byte is what step ${id#step-} must be ($text)"
    else
      fail "${text/ /: }"  # "not", "ok", and the rest.
    fi
  done < <("$python" deploy/demo_files.py compare "$model" "$ranks" "$generated" \
    "$root/$job/checkpoints" "$@" 2>>"$work/compare.log")
  ((count == $#)) || die "$# checkpoints to compare, but $count comparisons"
}

# flip FILE OFFSET: turns one bit over; a second time restores it.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
  printf '%b' "\\x$(printf %02x $((byte ^ 64)))" |
    dd of="$1" bs=1 seek="$2" conv=notrunc,fsync status=none
}
