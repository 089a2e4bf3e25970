#!/usr/bin/env bash
# other_compilers.sh PROGRAM ROOT: the plugins that `tessera new` writes pass tessera verify if built differently from
# the program: by clang with libc++, without optimization, with sanitizers. Tools that are not installed are named and
# skipped.
set -euo pipefail
program=$1
root=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
done_any=0

# build NAME KIND COMPILER...: builds the template of that kind as $folder/NAME/KIND.so
build() {
  mkdir -p "$folder/$1"
  plugin=$folder/$1/$2.so
  "${@:3}" -std=c++20 -fPIC -shared -fvisibility=hidden -I "$root/core/include" "$root/plugins/template/$2.cc" \
    -Wl,--version-script="$root/cmake/plugin.map" -Wl,-z,nodelete -o "$plugin"
}
# passes NAME LEVEL KINDS VERIFY... -- COMPILER...
passes() {
  local name=$1 level=$2 kinds=$3 verify=()
  shift 3
  while [ "$1" != -- ]; do verify+=("$1") && shift; done
  shift
  if ! command -v "$1" >/dev/null || ! echo '#include <vector>
int main() { return 0; }' | "$@" -std=c++20 -x c++ - -o "$folder/try" 2>/dev/null; then
    echo "SKIP: $name: \"$*\" compiles nothing here"
    return
  fi
  for kind in $kinds; do
    echo "== $name: $kind"
    build "$name" "$kind" "$@"
    env "${verify[@]}" "$program" verify --level "$level" "$plugin" |
      awk '/^[^ ]/ { show = !/^(passed|skipped)/ } show'  # the lines of a result are indented from the second on
    done_any=1
  done
}

quick="sharder kernel optimizer module"
passes libc++ 5 "$quick" -- clang++-14 -stdlib=libc++ -O2
passes libc++ 4 collective -- clang++-14 -stdlib=libc++ -O2  # level 5 of transports is mostly waiting
passes clang-unoptimized 5 "$quick" -- clang++-14 -O0
passes gcc-unoptimized 5 "$quick" -- g++ -O0 -D_GLIBCXX_ASSERTIONS
passes undefined 5 "$quick" UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 -- \
  g++ -O1 -g -fsanitize=undefined -fno-sanitize-recover=all
# The program is built without AddressSanitizer, which must be loaded before everything else.
passes address 5 "$quick" LD_PRELOAD="$(g++ -print-file-name=libasan.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 -- g++ -O1 -g -fsanitize=address
[ "$done_any" -eq 1 ] || { echo "SKIP: no other compiler"; exit 77; }
