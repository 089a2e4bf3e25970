#!/usr/bin/env bash
# usage: test_compiler.sh CLANG [CCACHE] GXX ARGUMENTS...
# Compiles a source of the tests by CLANG, which without optimisation takes half of gcc's time, and by GXX if CLANG has
# any complaint: a warning, or C++ that it does not know. So a test is wrong only when GXX says so. CMake's launcher of
# the tests in builds from scratch (TesseraScratch.cmake).
# How the tested code is compiled is left out of what CLANG is told, and paths of the build are told from there, so that
# CCACHE knows a test of one build in another: a test is compiled once for the plain build and the sanitizers'.
clang=$1
shift
cache=()
case $1 in
  *ccache) cache=("$1") && shift ;;
esac
gxx=$1
shift

plain=(-O0 -g0 -DNDEBUG)
before=
for argument in "$@"; do
  case $argument in
    -O* | -g* | -DNDEBUG | -Werror | -fsanitize=* | -fno-sanitize* | --param=*) continue ;;
    -D*) ;; # what a test runs is told whole
    *) argument=${argument//"$PWD/"/} ;;
  esac
  plain+=("$argument")
  if [ "$before" = -x ] && [ "$argument" = c++-header ]; then
    plain+=(-fpch-instantiate-templates)
    header=1
  fi
  # A header of before would be taken for a part of the new one.
  [ "$before" != -o ] || [ -z "${header:-}" ] || rm -f "$argument"
  before=$argument
done
# EXPECT_NO_THROW drops results; librdkafka's macros are statements in brackets.
"${cache[@]}" "$clang" "${plain[@]}" -Xclang -fno-pch-timestamp -Wno-unknown-warning-option \
  -Wno-unused-command-line-argument -Wno-unused-result -Wno-gnu-statement-expression -Werror 2>/dev/null ||
  exec "${cache[@]}" "$gxx" "$@"
