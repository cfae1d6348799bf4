# Sourced by test: the checks, and the count of what passed, failed and was skipped.

passed=0
failed=0
skipped=0

skip() {
  say "skipped: $1 ($2)"
  skipped=$((skipped + 1))
}

# outcome NAME SECONDS_AT_START STATUS: counts a check that is one thing as a whole.
outcome() {
  if (($3 == 0)); then
    passed=$((passed + 1))
    say "$1: passed, $((SECONDS - $2)) s"
  else
    failed=$((failed + 1))
    say "$1: FAILED, $((SECONDS - $2)) s"
  fi
}

# What only this machine knows; the presets say the rest. Archer tells TSan about OpenMP's own synchronisation;
# libomp and GoogleTest are not instrumented.
test_environment() {
  [[ $1 != tsan ]] || printf '%s\n' "OMP_TOOL_LIBRARIES=$(find /usr/lib/llvm-* -name libarcher.so -print -quit)" \
    TSAN_OPTIONS=ignore_noninstrumented_modules=1
}

# count_attribute NAME FILE: a number from the head of a JUnit report.
count_attribute() {
  sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

# Prints what the failed tests of a ctest log said.
failed_tests() {
  awk '/^ *[0-9]+\/[0-9]+ Test +#/ { show = /\*\*\*/ } /^ +Start +[0-9]+:/ { show = 0 } /^[0-9]+% tests passed/ { show = 1 }
       /^Label Time Summary/ { show = 0 } /^The following tests FAILED/ { show = 1 } show' "$1"
}

# check_tests PRESET FUZZ_COUNT TARGET [CTEST_ARGUMENT...]: builds the target and runs ctest.
check_tests() {
  local preset=$1 fuzz_count=$2 target=$3 started=$SECONDS
  shift 3
  if [[ $preset == tsan ]] && ! command -v clang++ >/dev/null; then
    skip "thread sanitizer" "no clang++"
    return
  fi
  if ! build "$preset" "$target"; then
    failed=$((failed + 1))
    return
  fi
  local report=$logs/$preset-tests.xml log=$logs/$preset-tests.log
  rm -f "$report"
  local status=0
  (cd "$root" && env $(test_environment "$preset") SACCADE_FUZZ_COUNT="$fuzz_count" \
    ctest --preset "$preset" -j "$(nproc)" --no-tests=error --output-junit "$report" "$@" >"$log" 2>&1) || status=$?
  if [[ ! -f $report ]]; then
    failed=$((failed + 1))
    show_log "ctest $preset" "$log"
    return
  fi
  local total bad not_run
  total=$(count_attribute tests "$report")
  bad=$(count_attribute failures "$report")
  not_run=$(($(count_attribute skipped "$report") + $(count_attribute disabled "$report")))
  # ctest can also fail as a whole, with no test to blame.
  if ((status != 0 && bad == 0)); then bad=1 total=$((total + 1)); fi
  passed=$((passed + total - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  say "tests $preset: $((total - bad - not_run)) of $total passed, $((SECONDS - started)) s"
  if ((bad > 0)); then
    failed_tests "$log" >"$logs/$preset-failed.log"
    show_log "tests $preset" "$logs/$preset-failed.log"
  fi
  if ((not_run > 0)); then
    say "skipped: $(sed -n 's/.*<testcase name="\([^".]*\)[^"]*".*status="\(notrun\|disabled\)".*/\1/p' "$report" |
      sort | uniq -c | awk '{ printf "%s%d of %s", (NR > 1 ? ", " : ""), $1, $2 }') (see $log)"
  fi
}

# The project's own sources below the given folders, committed or not.
sources() {
  local pattern='\.(h|c|cpp|cu|cuh)$'
  (cd "$root" && if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@"
  else
    find "$@" -type f -not -path './build/*' -printf '%P\n'
  fi) | grep -E "$pattern" | sort -u | while read -r file; do [[ -f $root/$file ]] && echo "$file"; done
}

check_format() {
  local started=$SECONDS status=0 log=$logs/format.log
  if ! command -v clang-format >/dev/null; then
    skip "format" "no clang-format"
    return
  fi
  (cd "$root" && sources . | xargs -r clang-format --dry-run -Werror >"$log" 2>&1) || status=$?
  if ((status != 0)); then show_log format "$log"; fi
  outcome format "$started" "$status"
}

# clang-tidy takes seconds a file, so a file that passed is not looked at again until it, a header, the checks or
# the flags change.
check_tidy() {
  local started=$SECONDS status=0 log=$logs/tidy.log cache=$logs/tidy
  if ! command -v clang-tidy >/dev/null; then
    skip "clang-tidy" "no clang-tidy"
    return
  fi
  mkdir -p "$cache"
  local common
  common=$( (cd "$root" && cat .clang-tidy $(sources include src tools | grep '\.h$') \
    "$logs/release/compile_commands.json" && clang-tidy --version) | sha256sum)
  local pending=()
  while read -r file; do
    local key
    key=$({ echo "$common $file" && cat "$root/$file"; } | sha256sum | cut -c1-64)
    [[ -f $cache/$key ]] || pending+=("$file" "$cache/$key")
  done < <(sources src tools | grep '\.cpp$')
  if ((${#pending[@]} > 0)); then
    (cd "$root" && printf '%s\n' "${pending[@]}" | xargs -P "$(nproc)" -n 2 bash -c \
      'clang-tidy --quiet -p "$0" "$1" && touch "$2"' "$logs/release" >"$log" 2>&1) || status=$?
  fi
  if ((status != 0)); then show_log clang-tidy "$log"; fi
  outcome "clang-tidy, $((${#pending[@]} / 2)) changed files" "$started" "$status"
}

has_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null
}

# Tests that need a GPU, as a pattern for ctest; where there is one, a pattern that fits nothing.
gpu_tests() {
  if has_gpu; then echo '^$'; else echo 'DeviceAsEmulated'; fi
}

# On a GPU: the kernels against the oracle, and compute-sanitizer's tools over a part of that. Elsewhere: why not.
check_cuda() {
  local reasons=()
  has_gpu || reasons+=("no GPU")
  command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] || reasons+=("no nvcc")
  if ((${#reasons[@]} > 0)); then
    local text
    text=$(printf '; %s' "${reasons[@]}")
    skip "CUDA kernels on a GPU; they ran in the emulator" "${text:2}"
    return
  fi
  local started=$SECONDS status=0 log=$logs/cuda.log saccade=$logs/release/tools/saccade/saccade
  { "$saccade" verify --device cuda --cases mission,small,odd,masks &&
    "$saccade" verify --device cuda --fuzz 500 &&
    "$saccade" sanitize --cases small,odd; } >"$log" 2>&1 || status=$?
  if ((status != 0)); then show_log "CUDA kernels" "$log"; fi
  outcome "CUDA kernels on the GPU" "$started" "$status"
}

# python_environment: an environment with torch and the test's tools; fails with a reason where that cannot be had.
# Kept until what is asked for changes.
python_environment() {
  local requirements=$root/python/tests/requirements.txt key
  command -v python3 >/dev/null || { echo "no python3"; return 1; }
  key=$( { python3 -V && cat "$requirements"; } | sha256sum | cut -c1-64)
  [[ -f $python_env/stamp && $(<"$python_env/stamp") == "$key" ]] && return
  rm -rf "$python_env"
  python3 -m venv "$python_env" >"$logs/python-env.log" 2>&1 || { echo "no python3-venv"; return 1; }
  "$python_env/bin/pip" install -q -r "$requirements" >>"$logs/python-env.log" 2>&1 ||
    { echo "pip could not install, see $logs/python-env.log"; return 1; }
  echo "$key" >"$python_env/stamp"
}

# Fetching gigabytes takes minutes and hardly a processor: it begins while everything else is compiled.
start_python_environment() {
  mkdir -p "$logs/python"
  local python_env=$logs/python/env
  (
    flock 9
    python_environment >"$logs/python/reason"
  ) 9>"$logs/python/lock" &
  python_environment_job=$!
  trap 'kill "$python_environment_job" 2>/dev/null || true' EXIT
}

# The Python package as a user installs it, around the release build's library, and its tests with PyTorch.
check_python() {
  local started=$SECONDS status=0 reason log=$logs/python.log python_env=$logs/python/env
  if ! wait "$python_environment_job"; then
    reason=$(<"$logs/python/reason")
    skip "Python package" "$reason"
    return
  fi
  local bin=$python_env/bin
  (cd "$root" && "$bin/pip" install -q --no-build-isolation --no-deps --force-reinstall \
    -C build-dir="$logs/python/build" -C cmake.define.SACCADE_PREBUILT="$logs/release/src/libsaccade.so" . \
    >"$log" 2>&1) || status=$?
  outcome "Python package" "$started" "$status"
  if ((status != 0)); then
    show_log "pip install" "$log"
    return
  fi
  started=$SECONDS
  (cd "$root" && "$bin/ruff" check -q python && "$bin/ruff" format --check -q python &&
    if command -v clang-tidy >/dev/null; then
      clang-tidy --quiet -p "$logs/python/build" python/csrc/*.cpp
    fi) >"$log" 2>&1 || status=$?
  if ((status != 0)); then show_log "ruff and clang-tidy" "$log"; fi
  outcome "ruff, and clang-tidy of python/csrc" "$started" "$status"

  started=$SECONDS
  status=0
  local report=$logs/python-tests.xml
  rm -f "$report"
  (cd "$root" && OMP_WAIT_POLICY=passive "$bin/python" -m pytest -q -p no:cacheprovider --junitxml="$report" >"$log" 2>&1) ||
    status=$?
  if [[ ! -f $report ]]; then
    failed=$((failed + 1))
    show_log pytest "$log"
    return
  fi
  local total bad not_run
  total=$(count_attribute tests "$report")
  bad=$(($(count_attribute failures "$report") + $(count_attribute errors "$report")))
  not_run=$(count_attribute skipped "$report")
  if ((status != 0 && bad == 0)); then bad=1 total=$((total + 1)); fi
  passed=$((passed + total - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  say "tests Python: $((total - bad - not_run)) of $total passed, $((SECONDS - started)) s"
  if ((bad > 0)); then show_log pytest "$log"; fi
  sed -n 's/^SKIPPED \(.*\)$/skipped: Python \1/p' "$log" >&2
}

report_and_exit() {
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0 && passed > 0)) || exit 1
  exit 0
}
