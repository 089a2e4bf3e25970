#!/usr/bin/env bash
# subjects_test.sh FOLDER: subjects.sh accepts a line of 72 characters, and names one of 73.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command -v git >/dev/null || { echo "SKIP: git is missing"; exit 77; }
rm -rf "$1" && mkdir -p "$1" && cd "$1"
commit() { git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m "$1"; }
git init -q .
commit first
commit "$(printf 'x%.0s' {1..72})"
"$here/subjects.sh" . HEAD~1 || { echo "72 characters are refused"; exit 1; }
commit "$(printf 'y%.0s' {1..73})"
if said=$("$here/subjects.sh" . HEAD~2); then echo "73 characters pass"; exit 1; fi
grep -q 'the first line has 73 characters.*yyy' <<<"$said" && ! grep -q xxx <<<"$said"
