#!/usr/bin/env bash
# Prints registers, spills and static shared memory of every CUDA kernel below a build folder, as ptxas reported them,
# and fails when one spills, keeps an array in local memory, or asks for more static shared memory than a launch without
# asking may have.
#   resource_report.sh FOLDER
set -euo pipefail
mapfile -t files < <(find "$1" -name '*.resources' | sort)
((${#files[@]} > 0)) || { echo "no *.resources below $1: was it built with nvcc?" >&2; exit 1; }
report() {
  awk '
    /Compiling entry function/ { split($0, part, "\047"); name = part[2]; arch = part[4]; next }
    /bytes stack frame/ { stack = $1; spills = $5 + $9; next }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
      printf "%s %s %d %d %d %d\n", name, arch, registers, stack, spills, shared
    }' "$@" | c++filt
}
printf '%-9s %9s %6s %6s %7s  %s\n' arch registers stack spills static kernel
bad=0
count=0
while read -r line; do
  # A demangled name has blanks: the numbers are the last five fields.
  read -r arch registers stack spills shared < <(awk '{ print $(NF-4), $(NF-3), $(NF-2), $(NF-1), $NF }' <<<"$line")
  name=$(awk '{ NF -= 5; print }' <<<"$line" | sed -E 's/saccade::device:://g; s/\(anonymous namespace\):://g; s/^void //; s/\(.*//')
  printf '%-9s %9d %6d %6d %7d  %s\n' "$arch" "$registers" "$stack" "$spills" "$shared" "$name"
  count=$((count + 1))
  faults=
  ((spills == 0)) || faults+=", spills"
  ((stack == 0 || spills > 0)) || faults+=", keeps an array in memory"
  ((shared <= 49152)) || faults+=", has more static shared memory than 48 KB"
  if [[ -n $faults ]]; then echo "  ^ ${faults#, }"; bad=$((bad + 1)); fi
done < <(report "${files[@]}")
echo "$count kernels, $bad of them at fault"
((bad == 0 && count > 0))
