#!/bin/sh
# record_resources.sh COMPILER ARGUMENTS... -o OBJECT: runs the compiler. Its output about registers and spills goes to
# OBJECT.resources instead of the terminal, everything else to stderr.
set -u
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
resources='^ptxas info|bytes stack frame|bytes spill stores|\[-Rpass-analysis=kernel-resource-usage\]'
if [ -n "$object" ]; then
  grep -E "$resources" "$said" >"$object.resources"
  grep -vE "$resources" "$said" >&2
else
  cat "$said" >&2
fi
exit "$status"
