#!/usr/bin/env bash
# rust_kernel.sh RUSTC PROGRAM SOURCE: builds the kernel in Rust like its project does; it passes tessera verify.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --edition 2021 --crate-type cdylib --crate-name rust_rows -O -C link-arg=-Wl,-z,nodelete "$3" \
  -o "$folder/tessera_rust_rows.so"
"$2" verify --level 5 "$folder/tessera_rust_rows.so"
