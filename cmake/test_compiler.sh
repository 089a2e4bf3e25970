#!/usr/bin/env bash
# usage: test_compiler.sh [--checked] CLANG [CCACHE] GXX ARGUMENTS...
# Compiles a source of the tests by CLANG, which without optimisation takes half of gcc's time, and by GXX if CLANG has
# any complaint: a warning, or C++ that it does not know. So a test is wrong only when GXX says so. The complaint is
# printed, because the second compiler makes the build longer. CMake's launcher of the tests in builds from scratch
# (TesseraScratch.cmake).
# With --checked, it compiles code that a sanitizer checks, for which gcc takes three times as long. Objects of both
# compilers are linked together: the sanitizers of clang 14 and gcc 12 are of one kind.
#
# CCACHE finds a test of one build in another: it is compiled once for the plain build and the sanitizers'. So CLANG is
# not told how the tested code is compiled; paths of the build are told from there; and where a macro has one, a path as
# long as it stands for it until the object is made.
checked=
[ "$1" != --checked ] || { checked=1 && shift; }
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
last=(-Werror)
if [ -n "$checked" ]; then
  plain=()
  # gcc's sanitizers read lines from the older form of debug information; with the check, clang has no coroutines.
  last=(-w -gdwarf-4 -fno-sanitize=function)
fi
before=
object=
for argument in "$@"; do
  case ${checked:+checked}$argument in
    checked-Og) argument=-O0 ;;
    checked-Werror | checked-fno-gnu-unique | checked--param=*) continue ;;
    checked-fsanitize=*address*) plain+=(-D__SANITIZE_ADDRESS__=1) ;;  # as gcc says
    checked-fsanitize=*thread*) plain+=(-D__SANITIZE_THREAD__=1) ;;
    checked*) ;;
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
  -Wno-unused-command-line-argument -Wno-unused-result -Wno-gnu-statement-expression "${last[@]}" 2>&1); then
  case " $* " in
    *" -D"*"$PWD"*) LC_ALL=C sed -i "s|$stand_in|$PWD|g" "$object" ;;
  esac
else
  printf '%s: compiled by %s, for %s says: %s\n' "${0##*/}" "$gxx" "${clang##*/}" "${complaint%%$'\n'*}"
  exec "${cache[@]}" "$gxx" "$@"
fi
