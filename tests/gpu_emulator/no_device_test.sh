#!/usr/bin/env bash
# GPU plugins with and without a GPU: they load, report that they can be used or why not, need no vendor driver, and
# export one symbol. no_device_test.sh TESSERA PLUGIN_FOLDER BACKEND...   BACKEND: cuda or hip
set -euo pipefail
tessera=$1 folder=$2
shift 2
fail() { printf 'FAILED: %s\n' "$*" && exit 1; }

report=$("$tessera" plugins --verbose --only-path --path "$folder")
for backend in "$@"; do
  case "$backend" in
    cuda) node=/dev/nvidiactl reason="no CUDA device: " ;;
    hip) node=/dev/kfd reason="no HIP device: " ;;
    *) fail "unknown backend $backend" ;;
  esac
  lines=$(grep -E "^$backend +" <<<"$report") || fail "tessera plugins does not list $backend: $report"
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [ -e "$node" ]; then
      grep -qE ' (chosen|available) ' <<<"$line" || fail "$node is there, but: $line"
    else
      grep -qE ' unusable ' <<<"$line" || fail "no $node, but: $line"
      grep -qF "$reason" <<<"$line" || fail "no \"$reason\" in: $line"
    fi
  done <<<"$lines"

  library=$folder/tessera_gpu_$backend.so
  needed=$(ldd "$library")
  ! grep -E 'libcuda\.|libcudart|libnvidia' <<<"$needed" || fail "$library needs a driver or runtime to load"
  exported=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^_init$\|^_fini$' || true)
  [ "$exported" = tessera_plugin_v1 ] || fail "$library exports: $exported"
done
echo passed
