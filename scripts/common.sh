# Sourced by the scripts beside it: where the repository is, and how a step is announced and timed.
# Plugins that others may write are not loaded: what is built here belongs to this user alone, whatever the umask was.
umask 022
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Without these, ccache keeps no object that uses a precompiled header, and so no test of scripts/test.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros}"
# These let another clone of the same sources find the objects compiled here, without preprocessing twice.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
export CCACHE_DEPEND="${CCACHE_DEPEND:-1}"

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# The version of these sources, which project() in CMakeLists.txt states.
project_version() { sed -n 's/^project(tessera VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt"; }

# step "what": announces a stage. times: prints how long each stage took.
step_names=()
step_starts=()
step() {
  step_names+=("$*")
  step_starts+=("$SECONDS")
  printf '\n==> %s\n' "$*"
}
times() {
  local i end
  printf '\nTime per stage:\n'
  for i in "${!step_names[@]}"; do
    end=${step_starts[i + 1]:-$SECONDS}
    printf '  %5d s  %s\n' $((end - step_starts[i])) "${step_names[i]}"
  done
}

# Number of concurrent compilers: one per core, but at most one per 1.5 GiB of memory.
build_jobs() {
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kib / (1536 * 1024)))
  [ "$by_memory" -ge 1 ] || by_memory=1
  [ "$cores" -le "$by_memory" ] && echo "$cores" || echo "$by_memory"
}

# Sets TESSERA_TEST_DATA to ../shared/data beside the repository if that exists and nothing else is set.
find_test_data() {
  if [ -z "${TESSERA_TEST_DATA:-}" ] && [ -d "$root/../shared/data" ]; then
    TESSERA_TEST_DATA=$(cd "$root/../shared/data" && pwd)
    export TESSERA_TEST_DATA
  fi
}

# fill_venv DIR IMPORTS PACKAGE...: makes a virtual environment in DIR and installs the packages by pip, unless it
# imports IMPORTS already.
fill_venv() {
  "$1/bin/python" -c "import $2" 2>/dev/null && return
  say "${*:3} in $1"
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet "${@:3}"
}

# take_build_and_python "$@": takes --build DIR and --python PYTHON into `build` and `python`, and leaves the other
# arguments in `rest`. Prints the script's first comment for an option that it does not know.
take_build_and_python() {
  build=$root/build/test python=
  while [ $# -gt 0 ]; do
    case $1 in
      --build) build=$(cd "$2" && pwd) ;;
      --python) python=$2 ;;
      -*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
      *) break ;;
    esac
    shift 2
  done
  rest=("$@")
}
