#!/usr/bin/env bash
# What README.md says is so: its example is the one that is built and works, its links lead
# somewhere, the flags and verbs it names exist, and its exit codes are those of the programs.
set -euo pipefail
export LC_ALL=C

# The link in the runfiles leads to the file in the tree.
tree=$(realpath "$(dirname "$(realpath "$0")")/../..")
readonly tree readme="$tree/README.md"
work=$(mktemp -d /tmp/readme.XXXXXX)
daemon=
finish() {
  [[ -z $daemon ]] || kill -KILL "$daemon" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
# Only what this test sets counts.
unset "${!CKPTD_@}" RANK WORLD_SIZE SLURM_PROCID SLURM_NTASKS
export CKPTD_SOCKET="$work/s"

failed=0
# check NAME COMMAND...
check() {
  local name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name" && failed=1; fi
}

# The first block of code in the language.
block() {
  awk -v open="\`\`\`$1" '$0 == open { on = 1; next } /^```$/ && on { exit } on' "$readme"
}

example_is_the_one_that_is_built() {
  diff <(block cpp) "$tree/client/examples/readme_example.cc"
}

example_goes_on_where_it_ended() {
  mkdir "$work/root"
  server/ckptd --root "$work/root" --node readme 2>"$work/log" &
  daemon=$!
  client/cli/ckptctl health --wait 10s >/dev/null &&
    client/examples/readme_example && [[ $(client/cli/ckptctl latest) == step-100 ]] &&
    client/examples/readme_example && [[ $(client/cli/ckptctl latest) == step-200 ]] &&
    kill -TERM "$daemon" && wait "$daemon" && return 0
  cat "$work/log"
  return 1
}

links_lead_somewhere() {
  local link wrong=0
  while read -r link; do
    [[ -e $tree/$link ]] || { echo "README.md: $link does not exist" && wrong=1; }
  done < <(grep -o '](\([^)]*\))' "$readme" | sed -e 's/^](//' -e 's/[)#].*//' |
    grep -v '^https*:' | sed '/^$/d')
  return "$wrong"
}

flags_exist() {
  local flag wrong=0
  server/ckptd --help >"$work/help"
  client/cli/ckptctl --help >>"$work/help"
  for verb in list describe verify status wait delete health; do
    client/cli/ckptctl "$verb" --help >>"$work/help"
  done
  cat "$tree/deploy/demo" "$tree/deploy/test" >>"$work/help"
  while read -r flag; do
    grep -qF -e "$flag" "$work/help" || { echo "README.md: there is no $flag" && wrong=1; }
  done < <(sed 's/$(pkg-config [^)]*)//g' "$readme" | grep -v -E 'bazel (build|run)' |
    grep -o -e '--[a-z][a-z-]*' | sort -u)
  return "$wrong"
}

exit_codes_are_those_of_the_source() {
  # `| 3 | nothing there |` in README.md, `kExitNothing = 3` in the source.
  diff <(sed -n 's/^| *\([0-9][0-9]*\) | .*/\1/p' "$readme" | sort -n) \
    <(grep -o 'kExit[A-Za-z]* = [0-9]*' "$tree/client/cli/exit_code.h" | sed 's/.* //' | sort -n)
}

check the_example_is_the_one_that_is_built example_is_the_one_that_is_built
check the_example_goes_on_where_it_ended example_goes_on_where_it_ended
check every_link_leads_somewhere links_lead_somewhere
check every_flag_exists flags_exist
check the_exit_codes_are_those_of_the_source exit_codes_are_those_of_the_source
exit "$failed"
