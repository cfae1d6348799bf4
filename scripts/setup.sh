# Sourced by run and test: finds or installs packages, configures and builds a preset. Quiet: progress goes to
# standard error, whole logs to build/*.log, and a failure prints the end of its log.

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
logs=$root/build
mkdir -p "$logs"

packages_to_build=(g++ cmake ninja-build pkg-config libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev
                   libsqlite3-dev libboost-context-dev libgtest-dev libgmock-dev gnuplot-nox git)
packages_to_check=(clang libomp-dev clang-format clang-tidy chromium fonts-dejavu-core python3-venv)

say() { printf '%s\n' "$*" >&2; }

# show_log WHAT LOG: reports a failed step with the end of its log.
show_log() {
  say "$1 failed; the end of $2:"
  tail -n 40 "$2" | sed 's/^/  /' >&2
}

# Keeps `WHAT [done/all]` on the terminal's last line while ninja's output passes through.
show_counter() {
  local line
  while read -r line; do
    [[ $line =~ ^\[[0-9]+/[0-9]+\] ]] && printf '\r%s %s ' "$1" "${BASH_REMATCH[0]}" >&2
  done
  printf '\r\033[K' >&2
}

# logged WHAT LOG COMMAND...: runs the command into the log and says how long it took, when it took long.
logged() {
  local what=$1 log=$2 started=$SECONDS status=0
  shift 2
  if [[ -t 2 ]]; then
    "$@" > >(tee "$log" | show_counter "$what") 2>&1 || status=$?
    wait $! || true
  else
    "$@" >"$log" 2>&1 || status=$?
  fi
  if ((status != 0)); then
    show_log "$what" "$log"
    return 1
  fi
  ((SECONDS - started < 2)) || say "$what: $((SECONDS - started)) s"
}

# Names of the given packages that are not installed.
missing_packages() {
  local installed name
  # It fails when it does not know one of them, which is no failure here.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $name"$'\n'* ]] || echo "$name"
  done
}

has_thread_sanitizer() {
  compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.tsan-*.a' >/dev/null
}

# Debian keeps the sanitizers' runtimes in a package named after the compiler's version.
sanitizer_package() {
  apt-cache show clang 2>/dev/null | sed -n 's/^Depends:.*\bclang-\([0-9]\+\).*/libclang-rt-\1-dev/p' | head -n 1
}

# ensure_packages [check]: installs what is missing, or says how to and exits with 3.
ensure_packages() {
  local wanted=("${packages_to_build[@]}") missing=() as_root=() line
  [[ ${1:-} != check ]] || wanted+=("${packages_to_check[@]}")
  if ! command -v dpkg-query >/dev/null; then
    for tool in c++ cmake ninja pkg-config; do
      command -v "$tool" >/dev/null && continue
      say "$tool is missing, and only Debian packages can be installed from here. Saccade needs what Debian calls:"
      say "  ${wanted[*]}"
      exit 3
    done
    return
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  local want_sanitizer=false
  if [[ ${1:-} == check ]] && ! has_thread_sanitizer; then want_sanitizer=true; fi
  if ((${#missing[@]} == 0)) && ! $want_sanitizer; then return; fi

  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    elif command -v sudo >/dev/null && [[ -t 0 && -t 2 ]]; then
      as_root=(sudo)
    else
      if $want_sanitizer; then missing+=("$(sanitizer_package)"); fi
      say "Packages are missing and this user cannot install them. Please run as root:"
      say "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
      exit 3
    fi
  fi
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
  say "installing: ${missing[*]}"
  if ! logged "apt-get update" "$logs/packages-update.log" "${install[@]}" update; then exit 3; fi
  if $want_sanitizer; then missing+=("$(sanitizer_package)"); fi
  if ! logged "apt-get install" "$logs/packages.log" \
    "${install[@]}" install -y --no-install-recommends "${missing[@]}"; then
    say "To install them by hand: apt-get install -y --no-install-recommends ${missing[*]}"
    exit 3
  fi
}

# configure PRESET: only when there is nothing yet, the presets changed, or the tree was moved; ninja itself
# notices every other change.
configure() {
  local dir=$logs/$1
  if [[ -f $dir/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    rm -rf "$dir"
  fi
  if [[ -f $dir/build.ninja && ! $root/CMakePresets.json -nt $dir/build.ninja ]]; then return; fi
  (cd "$root" && logged "configure $1" "$logs/$1-configure.log" cmake --preset "$1") || return 1
  touch "$dir/build.ninja"
}

# build PRESET [TARGET...]: configures and builds; one process at a time.
build() {
  local preset=$1
  shift
  (
    exec 9>"$logs/.lock"
    if ! flock -n 9; then
      say "waiting for another build in $logs"
      flock 9
    fi
    configure "$preset" && logged "build $preset" "$logs/$preset-build.log" ninja -C "$logs/$preset" "$@"
  )
}
