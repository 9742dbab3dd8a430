#!/usr/bin/env bash
# The reference safetensors library opens every shard of a real save of a real model, and finds the
# model in it. CKPTD_VENV and CKPTD_MODEL: see tests/README.md.
set -euo pipefail

readonly case=the_reference_library_reads_every_shard_of_a_real_save
readonly python=${CKPTD_VENV:-}/bin/python model=${CKPTD_MODEL:-} ranks=3
if [[ -z ${CKPTD_VENV:-} || ! -x $python ]]; then
  echo "skip $case # no Python environment: deploy/setup --python"
  exit 0
fi
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
  echo "skip $case # $CKPTD_VENV has no numpy or safetensors"
  exit 0
fi
if [[ ! -f $model ]]; then
  echo "skip $case # no model: deploy/setup --test-model"
  exit 0
fi

folder=$(mktemp -d /tmp/ckptd-shards-XXXXXX)
pids=()
clean_up() {
  ((${#pids[@]} == 0)) || kill -9 "${pids[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

server/ckptd --socket "$folder/s" --root "$folder/root" --node a 2>"$folder/log" &
daemon=$!
pids+=("$daemon")
client/cli/ckptctl --socket "$folder/s" health --wait 30s >/dev/null
trainers=()
for ((rank = 0; rank < ranks; ++rank)); do
  client/examples/trainer --socket "$folder/s" --job model --incarnation 1 --rank "$rank" \
    --world-size "$ranks" --model "$model" --tensor rows:float32:7x3 \
    --tensor mine:bool:5:local --steps 3 --save-every 3 >"$folder/trainer-$rank" &
  trainers+=("$!")
done
pids+=("${trainers[@]}")
for pid in "${trainers[@]}"; do
  wait "$pid" || { cat "$folder"/trainer-* "$folder/log"; echo "not ok $case"; exit 1; }
done
kill -TERM "$daemon"
wait "$daemon"
"$python" tests/support/read_shards.py model "$folder/root/model/checkpoints/step-3" "$model" 3 \
  "$ranks"
