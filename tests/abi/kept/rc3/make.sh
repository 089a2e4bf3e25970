#!/bin/sh
# Builds the binaries of this folder again from their sources and the headers of this tree. Use it only before a
# release, because the binaries are kept for being built against the earlier headers.
set -e
cd "$(dirname "$0")"
for kind in sharder optimizer kernel collective; do
  ${CC:-cc} -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wpedantic -Werror -I../../../../core/include \
    "$kind.c" -o "$kind.so" -Wl,--version-script=../../../../cmake/plugin.map -Wl,-z,nodelete -Wl,-z,defs \
    -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -s
done
