#!/bin/sh
# usage: test_compiler.sh CLANG [CCACHE] GXX ARGUMENTS...
# Compiles a source of the tests by CLANG, which without optimisation takes half of gcc's time, and by GXX if CLANG has
# any complaint: a warning, or C++ that it does not know. So a test is wrong only when GXX says so. CMake's launcher of
# the tests in builds from scratch (TesseraScratch.cmake).
clang=$1
shift
cache=
case $1 in
  *ccache) cache=$1 && shift ;;
esac
gxx=$1
shift

header=
case " $* " in
  *" -x c++-header "*) header=-fpch-instantiate-templates ;;
esac
if [ -n "$header" ]; then # a header of before would be taken for a part of the new one
  before=
  for argument in "$@"; do
    [ "$before" != -o ] || rm -f "$argument"
    before=$argument
  done
fi
# EXPECT_NO_THROW drops results; librdkafka's macros are statements in brackets.
# shellcheck disable=SC2086  # nothing where there is none
$cache "$clang" "$@" $header -Xclang -fno-pch-timestamp -Wno-unknown-warning-option \
  -Wno-unused-command-line-argument -Wno-unused-result -Wno-gnu-statement-expression -Werror 2>/dev/null ||
  exec $cache "$gxx" "$@"
