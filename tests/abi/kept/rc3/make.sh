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
sdk="-std=c++20 -O2 -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra -Werror
  -Wno-missing-field-initializers -I../../../../core/include -Wl,--version-script=../../../../cmake/plugin.map
  -Wl,-z,nodelete -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -s"
# shellcheck disable=SC2086
${CXX:-g++} $sdk layer_sdk_gcc.cc -o layer_sdk_gcc.so -fno-gnu-unique
# libc++ and libc++abi are inside, so that the binary runs where they are not installed.
# shellcheck disable=SC2086
${CLANGXX:-clang++-14} $sdk -stdlib=libc++ -nostdlib++ optimizer_sdk_clang.cc -o optimizer_sdk_clang.so \
  -ffunction-sections -fdata-sections -Wl,--gc-sections,--exclude-libs,ALL -Wl,-Bstatic -lc++ -lc++abi -Wl,-Bdynamic
# The source is the extra rust_rows as it was then.
${RUSTC:-rustc} --edition 2021 --crate-type cdylib --crate-name rust_rows -O -C lto -C strip=symbols \
  -C link-arg=-Wl,-z,nodelete ../../../../plugins/extras/rust_rows/rows.rs -o kernel_rust.so
