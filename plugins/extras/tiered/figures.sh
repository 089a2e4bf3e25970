#!/usr/bin/env bash
# Compares tables on disk with tables in memory, tables in a mapped file and rows in RocksDB, with memory for an eighth
# of rows and states.
#
#   sudo ./figures.sh TESSERA PLUGIN_FOLDER [STEPS [RUN...]]     RUN: memory uring threads mapped rocksdb; else all
#
# It needs cgroups, fio, a compiler, python3, librocksdb-dev, and 3 GiB of disk and memory. Directory of the files:
# TIERED_DIRECTORY, else /var/tmp. TIERED_TOP_MLP: widths of the top layers, for steps that compute more. Prints the
# disk's own rate, and milliseconds per step.
set -euo pipefail
tessera=$1 plugins=$2 steps=${3:-400}
runs=" ${*:4} "
[ $# -gt 3 ] || runs=" memory uring threads mapped rocksdb "
top=${TIERED_TOP_MLP:-32, 1}
here=$(cd "$(dirname "$0")" && pwd)
directory=${TIERED_DIRECTORY:-/var/tmp}
work=$(mktemp -d)
rows=1000000 tables=4 record=$((65 * 4)) beside=$((300 << 20))   # beside the tables: the program and its batches
cache=$((rows / 8))
limit=$((rows * tables * record / 8 + beside))
group=
cleanup() {
  rm -rf "$work"
  [ -z "$group" ] || rmdir "$group"
}
trap cleanup EXIT

limited() { # runs a command in a control group with `limit` bytes of memory
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/tiered-$$
    mkdir -p "$group"
    echo "$limit" >"$group/memory.max"
  else
    group=/sys/fs/cgroup/memory/tiered-$$
    mkdir -p "$group"
    echo "$limit" >"$group/memory.limit_in_bytes"
  fi
  bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@"
}

train() { # NAME KERNEL [COMMAND...], which is put before the program
  local name=$1 kernel=$2
  shift 2
  [[ $runs == *" $name "* ]] || return 0
  "$@" "$tessera" train --config "$here/job.toml" --max-steps "$steps" --set "plugins.path=[\"$plugins\"]" \
    --set "table_defaults.compute_kernel=\"$kernel\"" --set 'table_defaults.sharding=["table_wise"]' \
    --set model.embedding_dim=64 --set "model.bottom_mlp=[32, 64]" \
    --set "model.top_mlp=[$top]" --set "data.rows=[$rows]" --set data.batch=2048 \
    --set "data.samples=$((steps * 2048))" --set data.test_samples=2048 --set job.pipeline=true \
    --set planner.ddr_gib=8 --set "report.json=$work/$name.json" \
    >"$work/$name.log" || { cat "$work/$name.log" >&2; exit 1; }
  python3 - "$name" "$work/$name.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[2]))
steps = report["steps"]
pipeline = report.get("pipeline", {})
tables = report["tables"].values()
total = lambda key: sum(t.get(key, 0) for t in tables)
print(f"{sys.argv[1]}: {1e3 * report['train']['seconds'] / steps:.1f} ms a step, loss {report['train']['loss']!r}; "
      f"{total('storage_reads') / steps:.0f} rows read in a step and {total('storage_writes') / steps:.0f} written, "
      f"{total('read_us') / steps / 1e3:.1f} ms of reads of which lookups waited {total('wait_us') / steps / 1e3:.1f}; "
      f"{100 * total('hits') / total('lookups'):.1f} % of the lookups from memory; a step waited "
      f"{pipeline.get('waited_us_per_step', 0) / 1e3:.1f} ms for its input")
PYTHON
}

echo "random reads of 4 KiB, 64 at a time:"
fio --name=reads --filename="$directory/tiered-fio-$$" --size=2g --rw=randread --bs=4k --iodepth=64 \
  --ioengine=io_uring --direct=1 --runtime=15 --time_based --unlink=1 --output-format=terse --terse-version=3 |
  awk -F';' '{ printf "  %d a second, %.0f MiB/s\n", $8, $7 / 1024 }'
[[ $runs != *" mapped "* ]] ||
  cc -shared -fPIC -O2 -o "$work/mapped.so" "-DMAPPED_FOLDER=\"$directory\"" "$here/mapped_tables.c" -ldl
train memory fused env
train uring "key_value?cache_rows=$cache&io=uring&directory=$directory" limited
train threads "key_value?cache_rows=$cache&io=threads&depth=16&directory=$directory" limited
train mapped fused limited env "LD_PRELOAD=$work/mapped.so"
if [[ $runs == *" rocksdb "* ]]; then
  c++ -std=c++20 -O2 -o "$work/rocksdb_rows" "$here/rocksdb_rows.cc" -lrocksdb
  echo "rocksdb, its rows alone: $(limited "$work/rocksdb_rows" "$directory/tiered-rocksdb-$$" "$rows" 65 "$steps" \
    "$((rows * tables * record / 8))") ms a step"
  rm -rf "$directory/tiered-rocksdb-$$"
fi
