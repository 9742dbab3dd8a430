#!/usr/bin/env bash
# This tree keeps the rules of tests/tidy/check.
set -euo pipefail

# The link in the runfiles leads to the file in the tree.
check=$(realpath "$(dirname "$0")/check")
if "$check" "$(dirname "$check")/../.."; then
  echo "ok tree keeps the rules"
else
  echo "not ok tree keeps the rules"
  exit 1
fi
