#!/usr/bin/env bash
# The reference safetensors library opens what we write. CKPTD_VENV: see tests/README.md.
set -euo pipefail

readonly python=${CKPTD_VENV:-}/bin/python
if [[ -z ${CKPTD_VENV:-} || ! -x $python ]]; then
  echo "skip the_reference_library_reads_our_shards # no Python environment: deploy/setup --python"
  exit 0
fi
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
  echo "skip the_reference_library_reads_our_shards # $CKPTD_VENV has no numpy or safetensors"
  exit 0
fi

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
tests/storage/format/write_sample "$folder"
"$python" tests/support/read_shards.py sample "$folder"
