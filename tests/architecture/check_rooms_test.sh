#!/usr/bin/env bash
# Plants one violation of each rule in a small tree and fails unless check_rooms.sh names every one.
set -euo pipefail
check=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/check_rooms.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

room() {
  mkdir -p "$tree/$1"
  touch "$tree/$1/README.md"
}
for name in include/saccade src/core src/cpu src/plan src/capi src/verify src/measure tools/saccade python; do room $name; done
printf '#include <vector>\n#include <saccade/status.h>\n' >"$tree/include/saccade/good.h"
printf '#include "core/kernel.h"\n#include "cpu/kernels.h"\n' >"$tree/src/plan/good.cpp"
bash "$check" "$tree" || { echo "a clean tree was refused"; exit 1; }

expect() { # FILE TEXT WORDS: with this text in this file the check must fail and say the words
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "$2" >"$tree/$1"
  if bash "$check" "$tree" >"$tree/said"; then
    echo "not caught: $2 in $1"
    exit 1
  fi
  grep -qF -- "$3" "$tree/said" || { echo "$1 was refused with other words:"; cat "$tree/said"; exit 1; }
  rm "$tree/$1"
}
expect src/core/bad.cpp '#include "plan/registry.h"' 'src/core may not see it'
expect src/cpu/bad.cpp '#include "plan/registry.h"' 'src/cpu may not see it'
expect src/plan/bad.cpp '#include "cpu/reference.h"' 'src/plan may not see it'
expect src/plan/bad.h '  #  include "verify/verify.h"' 'src/plan may not see it'
expect src/capi/bad.cpp '#include "core/config.h"' 'src/capi may not see it'
expect src/verify/bad.cpp '#include "measure/sampler.h"' 'src/verify may not see it'
expect src/measure/bad.cpp '#include "cpu/kernels.h"' 'src/measure may not see it'
expect tools/saccade/bad.cpp '#include "plan/plan_state.h"' 'tools/saccade may not see it'
expect include/saccade/bad.h '#include "core/config.h"' 'include/saccade may not see it'
expect include/saccade/bad.h '#include <fmt/format.h>' 'public headers see only'
expect src/cpu/bad.cpp 'void f() { asm volatile("nop"); }' 'asm statement'
expect src/plan/bad.cpp '#include <torch/torch.h>' 'torch types'
expect python/csrc/bad.cpp '#include <saccade/plan.h>' 'the C ABI alone'
expect python/csrc/bad.cpp '#include <torch/torch.h>' 'the stable ABI of torch alone'
expect python/csrc/bad.cpp '#include <c10/util/Exception.h>' 'the stable ABI of torch alone'
expect python/csrc/bad.cpp '#include "core/config.h"' 'python/csrc may not see it'
expect src/newroom/README.md 'x' 'has no rule'
rmdir "$tree/src/newroom"
rm "$tree/src/core/README.md"
expect src/core/fine.cpp '' 'src/core has no README.md'
echo "every planted violation was caught"
