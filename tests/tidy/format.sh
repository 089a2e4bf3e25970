#!/usr/bin/env bash
# format.sh ROOT: checks that every C and C++ file is formatted by clang-format-14. Exit status 77: skipped.
set -euo pipefail
cd "$1"
if ! command -v clang-format-14 >/dev/null; then
  echo "SKIP: clang-format-14 is not installed (scripts/install_packages installs it)"
  exit 77
fi
sources() {
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard -- \
    '*.h' '*.hpp' '*.cc' '*.cpp' '*.c' '*.cu' '*.cuh' '*.hip'
}
if ! sources >/dev/null 2>&1; then
  echo "SKIP: git is missing, or $1 is not a checkout"
  exit 77
fi
sources | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
  xargs -0 -n 8 -P 2 clang-format-14 --dry-run -Werror
echo "formatted"
