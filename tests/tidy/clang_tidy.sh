#!/usr/bin/env bash
# clang_tidy.sh ROOT BUILD [MOST]: runs clang-tidy-14, with the checks of .clang-tidy, on sources that the last 20
# commits changed. Those changed most often come first, at most MOST of them; the others are named. Without MOST it
# checks all sources. BUILD/clang_tidy gets its own configuration, because a build may compile several sources together.
# Exit status 77: skipped.
set -euo pipefail
cd "$1"
folder=$2/clang_tidy
most=${3:-}
if ! command -v clang-tidy-14 >/dev/null; then
  echo "SKIP: clang-tidy-14 is not installed (scripts/install_packages installs it)"
  exit 77
fi
git=(git -c safe.directory='*')
if ! "${git[@]}" ls-files >/dev/null 2>&1; then
  echo "SKIP: git is missing, or $1 is not a checkout"
  exit 77
fi
mkdir -p "$folder"
cmake -S . -B "$folder" -G Ninja -DTESSERA_CUDA=OFF -DTESSERA_HIP=OFF -DTESSERA_UNITY=OFF >"$folder/log" 2>&1 ||
  { cat "$folder/log"; exit 1; }
if ninja -C "$folder" -t query tessera_generated >/dev/null 2>&1; then
  ninja -C "$folder" tessera_generated >>"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
fi
if [ -n "$most" ]; then
  listed=$("${git[@]}" log -20 --format= --name-only -- '*.cc' | sort | uniq -c | sort -k1,1rn -k2 | awk '{print $2}')
else
  listed=$("${git[@]}" ls-files -- '*.cc')
fi
chosen=()
left_out=()
for file in $listed; do
  grep -qF "\"$PWD/$file\"" "$folder/compile_commands.json" || continue  # removed since, or not built here
  if [ -z "$most" ] || [ "${#chosen[@]}" -lt "$most" ]; then chosen+=("$file"); else left_out+=("$file"); fi
done
echo "clang-tidy: ${#chosen[@]} files; not looked at: ${#left_out[@]}${left_out[*]:+: ${left_out[*]}}"
[ "${#chosen[@]}" -gt 0 ] || exit 0
# clang 14 does not know C++20's lambdas that capture structured bindings; the rest of such a file is checked.
printf '%s\0' "${chosen[@]}" |
  xargs -0 -n 1 -P 2 sh -c 'clang-tidy-14 -p "$0" --quiet "$1" 2>/dev/null || :' "$folder" |
  grep -E '^/.*: (warning|error): ' | grep -v 'reference to local binding .* declared in enclosing function' |
  sort -u >"$folder/findings" || :
sed "s|^$PWD/||" "$folder/findings"
[ ! -s "$folder/findings" ]
