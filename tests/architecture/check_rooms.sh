#!/usr/bin/env bash
# Checks which room includes what (the rules of docs/architecture.md), where `asm` stands, and that every room
# has a README. Prints each violation; fails when there is one.
#   check_rooms.sh REPOSITORY
set -uo pipefail
cd "$1" || exit 2
violations=0

violation() {
  echo "$1"
  violations=$((violations + 1))
}

code_files() {
  find "$@" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null
}

# includes_of FILE...: "file:include" with the quotes or brackets kept.
includes_of() {
  (($# == 0)) || grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+[>"]' "$@" |
    sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*/ /'
}

# only ROOM ALLOWED: quoted includes of the room must match the regular expression.
only() {
  local room=$1 allowed=$2 file include
  while read -r file include; do
    [[ $include == \"* ]] || continue
    [[ $include =~ ^\"($allowed)\"$ ]] || violation "$file includes $include; $room may not see it"
  done < <(includes_of $(code_files "$room"))
}

declare -A sees=(
  [src/core]='core/.*'
  [src/cpu]='(core|cpu)/.*'
  [src/plan]='(core|plan)/.*|(cpu|cuda)/kernels\.h|cuda/launch/runtime\.h'
  [src/capi]='capi/.*'
  [src/emu]='emu/.*'
  [src/cuda]='(core|cuda)/.*|emu/session\.h|emu/thread\.h'
  [src/cuda/ptx]='cuda/ptx/.*|core/dtypes\.h|emu/thread\.h'
  [src/cuda/tile]='cuda/(ptx|tile)/.*|core/(dtypes|sequence)\.h'
  [src/cuda/ceilings]='cuda/(ceilings|launch|ptx|tile)/.*'
  [src/cuda/reference]='(core|cuda/(launch|ptx|tile|reference))/.*'
  [src/cuda/sm80]='(core|cuda/(launch|ptx|tile|sm80))/.*'
  [src/cuda/sm90]='(core|cuda/(launch|ptx|tile|sm90))/.*'
  [src/cuda/ladder]='(core|cuda/(launch|ptx|tile|ladder))/.*'
  [src/verify]='(core|cpu|emu|plan|verify)/.*|cuda/kernels\.h|cuda/launch/runtime\.h'
  [src/measure]='(core|measure)/.*|build_commit\.h'
  [src/store]='store/.*|measure/statistics\.h'
  [tools/saccade]='(core|emu|verify|measure|store)/.*|cuda/kernels\.h|cuda/launch/runtime\.h|cuda/ceilings/ceilings\.h|[^/]+'
  [python/csrc]='[^/]+'
  [examples]='nothing of ours but the public headers'
  [include/saccade]='nothing by quotes'
)

for room in "${!sees[@]}"; do
  [[ -d $room ]] && only "$room" "${sees[$room]}"
done

for room in src/*/; do
  [[ -n ${sees[${room%/}]:-} ]] || violation "${room%/} has no rule in check_rooms.sh"
done

# Public headers: the standard library and our own, nothing else.
while read -r file include; do
  [[ $include =~ ^\<(saccade/[a-z_]+\.h|[a-z_]+|stddef\.h|stdint\.h)\>$ ]] ||
    violation "$file includes $include; public headers see only the standard library and saccade/"
done < <(includes_of $(code_files include/saccade))

while read -r file; do
  [[ $file == src/cuda/ptx/* ]] || violation "$file has an asm statement; those live in src/cuda/ptx"
done < <(code_files include src tools examples | xargs -r grep -lE '\b(asm|__asm|__asm__)\b[[:space:]]*(volatile|__volatile__)?[[:space:]]*\(')

while read -r file include; do
  [[ $include =~ ^[\<\"](torch|ATen|c10)/ ]] && violation "$file includes $include; torch types live under python/"
done < <(includes_of $(code_files include src tools examples))

# The Python package sees the library by its C ABI alone, and torch by its stable one.
while read -r file include; do
  [[ $include =~ ^\<saccade/ && $include != "<saccade/saccade.h>" ]] &&
    violation "$file includes $include; python/ sees the C ABI alone"
  [[ $include =~ ^[\<\"](ATen|c10|Python\.h|pybind11) ]] &&
    violation "$file includes $include; python/ sees the stable ABI of torch alone"
  [[ $include =~ ^[\<\"]torch/ && ! $include =~ ^\<torch/(csrc/stable|csrc/inductor/aoti_torch/c|headeronly)/ ]] &&
    violation "$file includes $include; python/ sees the stable ABI of torch alone"
done < <(includes_of $(code_files python))

for room in include/saccade src/*/ tools/*/ tests cases evidence examples python; do
  [[ ! -d $room || -f ${room%/}/README.md ]] || violation "${room%/} has no README.md"
done

((violations == 0)) && echo "rooms are as agreed" && exit 0
echo "$violations violations"
exit 1
