#!/usr/bin/env bash
# Plants one breach of each rule in a small clean tree: the check names it, and nothing else.
set -euo pipefail

check=$(realpath "$(dirname "$0")/check")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# Makes a tree that keeps the rules, and goes there.
clean_tree() {
  local tree
  tree=$(mktemp -d "$scratch/tree.XXXXXX")
  cd "$tree"
  mkdir -p storage/base storage/disk server client deploy
  header storage/base/unit.h CKPTD_STORAGE_BASE_UNIT_H_
  printf 'cc_library(\n    name = "unit",\n    hdrs = ["unit.h"],\n)\n' >storage/base/BUILD.bazel
  printf '#!/usr/bin/env bash\nset -euo pipefail\n' >deploy/script
  chmod +x deploy/script
}

# header FILE GUARD [INCLUDE]
header() {
  printf '// A unit.\n#ifndef %s\n#define %s\n%s\n#endif  // %s\n' \
    "$2" "$2" "${3:+#include $3}" "$2" >"$1"
}

# A source with this text that is in a target of its folder. source_file FILE [LINE...]
source_file() {
  local file=$1
  shift
  printf '%s\n' "$@" >"$file"
  printf 'cc_library(\n    name = "x",\n    srcs = ["%s"],\n)\n' "${file##*/}" \
    >"$(dirname "$file")/BUILD.bazel"
}

repeat() { yes "$2" | head -n "$1"; }

# expect CASE TEXT...: the check fails, and each line that it prints contains one of the texts.
expect() {
  local name=$1 output
  shift
  if output=$("$check" "$PWD"); then
    output="(no breach was found)"
  elif ! grep -qvF "$(printf '%s\n' "$@")" <<<"$output"; then
    echo "ok $name"
    return 0
  fi
  printf 'expected: %s\nprinted: %s\nnot ok %s\n' "$*" "$output" "$name"
  failures=$((failures + 1))
}

clean_tree
if "$check" "$PWD"; then
  echo "ok clean tree"
else
  echo "not ok clean tree"
  failures=$((failures + 1))
fi

clean_tree
source_file storage/base/long.cc "$(repeat 601 '// A line.')"
printf '    hdrs = ["unit.h"],\n' >>storage/base/BUILD.bazel
expect "long file" "storage/base/long.cc: over 600 lines"

clean_tree
source_file server/wide.cc "// $(repeat 98 x | tr -d '\n')" "// $(repeat 97 é | tr -d '\n')"
expect "wide line" "server/wide.cc:1: over 100 columns"

clean_tree
source_file server/screen.cc "void F() {" "$(repeat 69 '  G();')" "}"
expect "long function" "server/screen.cc:1: a function of 71 lines"

clean_tree
source_file server/space.cc "int x; "
expect "space at the end" "server/space.cc:1: space at the end"

clean_tree
header storage/base/unit.h CKPTD_OTHER_H_
expect "include guard" "storage/base/unit.h: its include guard is not CKPTD_STORAGE_BASE_UNIT_H_"

clean_tree
sed -i 1d storage/base/unit.h
expect "header without comment" "storage/base/unit.h:1: a header starts with a comment"

for include in '<grpcpp/server.h>' '"proto/ckptd/v1/admin.pb.h"' '<liburing.h>' \
  '"spdlog/spdlog.h"' '<cuda.h>' '<gtest/gtest.h>'; do
  clean_tree
  source_file storage/disk/door.cc "#include $include"
  expect "door of $include" "storage/disk/door.cc:1: includes $include"
done

clean_tree
source_file storage/disk/uring_disk.cc "#include <liburing.h>" "#include <grpcpp/server.h>"
expect "one door is no other" "storage/disk/uring_disk.cc:2: includes <grpcpp/server.h>"

while read -r file include; do
  clean_tree
  source_file "$file" "#include \"$include\""
  expect "layer of $file under $include" "$file:1: includes \"$include\", which is in a layer"
done <<'PAIRS'
storage/disk/a.cc server/daemon.h
storage/disk/a.cc client/cpp/client.h
storage/disk/a.cc storage/format/paths.h
server/a.cc client/cpp/client.h
client/a.cc server/daemon.h
server/a.cc tests/support/fake.h
PAIRS

clean_tree
mkdir client/cpp
header client/cpp/client.h CKPTD_CLIENT_CPP_CLIENT_H_ '"client/cpp/session.h"'
header client/cpp/session.h CKPTD_CLIENT_CPP_SESSION_H_ '<grpcpp/channel.h>'
printf 'cc_library(\n    name = "c",\n    hdrs = ["client.h", "session.h"],\n)\n' \
  >client/cpp/BUILD.bazel
expect "public header" "client/cpp/session.h: includes <grpcpp/channel.h>, but is part of"

for line in 'absl::Mutex m;' 'void F() { throw 1; }' 'using namespace std;'; do
  clean_tree
  source_file server/a.cc "$line" "// It does not throw."
  expect "dialect: $line" "server/a.cc:1: "
done

clean_tree
printf 'x = glob(["*.x"])\n' >>storage/base/BUILD.bazel
expect "glob" "storage/base/BUILD.bazel:5: glob"

clean_tree
printf 'cc_test(\n    name = "a_test",\n)\n' >>storage/base/BUILD.bazel
expect "test without size" "storage/base/BUILD.bazel:5: a test without size"

clean_tree
touch storage/base/lost.cc
expect "source without target" "storage/base/lost.cc: in no target of storage/base/BUILD.bazel"

clean_tree
printf '#!/usr/bin/env bash\n' >deploy/script
expect "careless script" "deploy/script: a script without set -euo pipefail"

clean_tree
chmod -x deploy/script
expect "script not executable" "deploy/script: a script that is not executable"

clean_tree
echo 'if then' >>deploy/script
expect "script with a syntax error" "deploy/script: a syntax error"

# The words are put together here, so that this file does not break the rules itself.
for words in "TO""DO: later" "see /ho""me/me/notes" "for iss""ue #12" "read missing""_file.md"; do
  clean_tree
  echo "$words" >deploy/notes.txt
  expect "words: $words" "deploy/notes.txt:1: "
done

exit $((failures > 0))
