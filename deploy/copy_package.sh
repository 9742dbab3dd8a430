#!/usr/bin/env bash
# Copies the release archive into a folder under its full name, and prints that: run by
# deploy/package.
set -euo pipefail
export LC_ALL=C
readonly archive=deploy/ckptd-linux-x86_64.tar.gz folder=$1

# The archive's own folder has the version in its name.
first=$(tar -tzf "$archive" | sed -n '1{s,/.*,,;p}')
mkdir -p "$folder"
target="$folder/$first.tar.gz"
cp -f "$archive" "$target.part"
chmod 0644 "$target.part"
mv "$target.part" "$target"
echo "$target"
