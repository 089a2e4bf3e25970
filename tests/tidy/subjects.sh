#!/usr/bin/env bash
# subjects.sh ROOT [SINCE]: checks that every commit after SINCE has a first line of at most 72 characters; the default
# is the last commit before this check existed. Merges have git's own text. Exit status 77: skipped.
set -euo pipefail
since=${2:-765ed61fd01c}
most=72
git=(git -c safe.directory='*' -C "$1")
if ! "${git[@]}" merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
  echo "SKIP: git is missing, or $1 is no checkout with its history"
  exit 77
fi
status=0
while IFS= read -r line; do
  subject=${line#* }
  [ "${#subject}" -le "$most" ] && continue
  echo "commit ${line%% *}: the first line has ${#subject} characters, at most $most are allowed: $subject"
  status=1
done < <("${git[@]}" log --no-merges --format='%h %s' "$since..HEAD")
exit "$status"
