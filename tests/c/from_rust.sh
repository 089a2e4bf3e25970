#!/bin/sh
# from_rust.sh RUSTC SOURCE LIBRARY_FOLDER PROGRAM: builds the example in Rust and checks that it learns, on one rank
# and on two.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --edition 2021 -O "$2" -L "$3" -l tessera -o "$folder/train"
export LD_LIBRARY_PATH="$3"

learns() {
  "$@" > "$folder/told"
  cat "$folder/told"
  awk '/^step 300, loss/ { loss = $4 } END { exit !(loss != "" && loss < 0.4) }' "$folder/told"  # chance is 0.69
}
learns "$folder/train"
learns "$4" launch -n 2 -- "$folder/train" "$folder/saved"
test -e "$folder/saved/save-1/checkpoint.json"
