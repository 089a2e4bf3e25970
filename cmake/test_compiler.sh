#!/usr/bin/env bash
# usage: test_compiler.sh CLANG [CCACHE] GXX ARGUMENTS...
# Compiles a source of the tests by CLANG, which without optimisation takes half of gcc's time, and by GXX if CLANG has
# any complaint: a warning, or C++ that it does not know. So a test is wrong only when GXX says so. The complaint is
# printed, because the second compiler makes the build longer. CMake's launcher of the tests in builds from scratch
# (TesseraScratch.cmake).
# CCACHE finds a test of one build in another: it is compiled once for the plain build and the sanitizers'. So CLANG is
# not told how the tested code is compiled; paths of the build are told from there; and where a macro has one, a path as
# long as it stands for it until the object is made.
clang=$1
shift
cache=()
case $1 in
  *ccache) cache=("$1") && shift ;;
esac
gxx=$1
shift

name=${PWD##*/}
stand_in=${PWD%/*}/${name//?/_}
plain=(-O0 -g0 -DNDEBUG)
before=
object=
for argument in "$@"; do
  case $argument in
    -O* | -g* | -DNDEBUG | -Werror | -fsanitize=* | -fno-sanitize* | -fno-gnu-unique | --param=*) continue ;;
    -D*) argument=${argument//"$PWD"/"$stand_in"} ;;
    *) argument=${argument//"$PWD/"/} ;;
  esac
  plain+=("$argument")
  if [ "$before" = -x ] && [ "$argument" = c++-header ]; then
    plain+=(-fpch-instantiate-templates)
    header=1
  fi
  if [ "$before" = -o ]; then
    object=$argument
    # A header from an earlier build would be taken for a part of the new one.
    [ -z "${header:-}" ] || rm -f "$object"
  fi
  before=$argument
done
# EXPECT_NO_THROW drops results; librdkafka's macros are statements in brackets.
if complaint=$("${cache[@]}" "$clang" "${plain[@]}" -Xclang -fno-pch-timestamp -Wno-unknown-warning-option \
  -Wno-unused-command-line-argument -Wno-unused-result -Wno-gnu-statement-expression -Werror 2>&1); then
  case " $* " in
    *" -D"*"$PWD"*) LC_ALL=C sed -i "s|$stand_in|$PWD|g" "$object" ;;
  esac
else
  printf '%s: compiled by %s, for %s says: %s\n' "${0##*/}" "$gxx" "${clang##*/}" "${complaint%%$'\n'*}"
  exec "${cache[@]}" "$gxx" "$@"
fi
