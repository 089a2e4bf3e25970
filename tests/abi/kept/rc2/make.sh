#!/bin/sh
# Builds the binary of this folder again from its source and the headers of that release candidate.
set -e
cd "$(dirname "$0")"
${CC:-cc} -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wpedantic -Werror -I../../../../core/include \
  sharder.c -o sharder.so -Wl,--version-script=../../../../cmake/plugin.map -Wl,-z,nodelete -Wl,-z,defs \
  -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -s
