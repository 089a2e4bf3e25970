#!/usr/bin/env bash
# link.sh TESSERA FOLDER [RUNS]: measures the figures of README.md on this machine. Two ranks train in their own network
# namespaces, joined by a link of 1 Gbit/s; each transport in turn, RUNS times (5). TESSERA is the program; FOLDER has
# tessera_codec.so. Needs root and iproute2. Everything it creates is removed at its end.
set -euo pipefail
program=$1
plugins=$(realpath "$2")
runs=${3:-5}
here=$(dirname "$(realpath "$0")")
names=(codec-link-$$-0 codec-link-$$-1)
logs=$(mktemp -d)
clean() {
  for name in "${names[@]}"; do ip netns del "$name" 2>/dev/null || :; done
  rm -rf "$logs"
}
trap clean EXIT

for name in "${names[@]}"; do ip netns add "$name"; done
ip link add cl0 netns "${names[0]}" type veth peer name cl1 netns "${names[1]}"
for side in 0 1; do
  inside=(ip netns exec "${names[$side]}")
  "${inside[@]}" ip addr add "10.77.0.$((side + 1))/24" dev "cl$side"
  "${inside[@]}" ip link set "cl$side" up
  "${inside[@]}" tc qdisc add dev "cl$side" root tbf rate 1gbit burst 256kb latency 50ms
done

rank() {  # rank R BACKEND
  ip netns exec "${names[$1]}" env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 \
    MASTER_PORT=29511 TESSERA_JOB_TOKEN=$$ "$program" train --config "$here/link.toml" --set "comm.backend=\"$2\"" \
    --set "plugins.path=[\"$plugins\"]"
}
for run in $(seq "$runs"); do
  for backend in tcp 'codec(tcp)' 'codec:int8(tcp)'; do
    rank 1 "$backend" >"$logs/1" 2>&1 &
    rank 0 "$backend" >"$logs/0" 2>&1 || { cat "$logs"/*; exit 1; }
    wait
    printf '%-16s run %d: %s\n' "$backend" "$run" "$(grep -o '[0-9]* samples/s, train' "$logs/0" | tail -1)"
  done
done
