#!/bin/sh
# make.sh [aarch64 ROOT]: builds the binaries of this folder again, or those of aarch64/, from their sources and the
# headers of this tree. ROOT is the folder with Debian's arm64 packages that scripts/dev/test_aarch64 makes, with
# libc++-14-dev, libc++abi-14-dev and libstd-rust-dev; rustc must be of the same version. Use it only before a release,
# because the binaries are kept for being built against the earlier headers.
set -e
cd "$(dirname "$0")"
top=../../../..
out=.
clang_flags=
rust_flags="-C link-arg=-Wl,-z,nodelete"
if [ "${1:-}" = aarch64 ]; then
  root=${2:?}
  CC=aarch64-linux-gnu-gcc
  CXX=aarch64-linux-gnu-g++
  out=aarch64
  clang_flags="--target=aarch64-linux-gnu --sysroot=$root -fuse-ld=bfd -L$root/usr/lib/llvm-14/lib"
  rust_flags="$rust_flags --target aarch64-unknown-linux-gnu --sysroot $root/usr -C linker=$CC"
  mkdir -p $out
fi
hidden="-O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -I$top/core/include
  -Wl,--version-script=$top/cmake/plugin.map -Wl,-z,nodelete -Wl,--build-id=none -Wl,-z,noseparate-code
  -Wl,-z,norelro -s"
# shellcheck disable=SC2086
for kind in sharder optimizer kernel collective; do
  ${CC:-cc} -std=c11 -Wpedantic $hidden "$kind.c" -o "$out/$kind.so" -Wl,-z,defs
done
sdk="-std=c++20 -fvisibility-inlines-hidden -Wno-missing-field-initializers $hidden"
# shellcheck disable=SC2086
${CXX:-g++} $sdk layer_sdk_gcc.cc -o $out/layer_sdk_gcc.so -fno-gnu-unique
# libc++ and libc++abi are inside, so that the binary runs where they are not installed.
# shellcheck disable=SC2086
${CLANGXX:-clang++-14} $clang_flags $sdk -stdlib=libc++ -nostdlib++ optimizer_sdk_clang.cc \
  -o $out/optimizer_sdk_clang.so -ffunction-sections -fdata-sections -Wl,--gc-sections,--exclude-libs,ALL \
  -Wl,-Bstatic -lc++ -lc++abi -Wl,-Bdynamic
# The source is the extra rust_rows as it was then.
# shellcheck disable=SC2086
${RUSTC:-rustc} --edition 2021 --crate-type cdylib --crate-name rust_rows -O -C lto -C strip=symbols \
  $rust_flags $top/plugins/extras/rust_rows/rows.rs -o $out/kernel_rust.so
