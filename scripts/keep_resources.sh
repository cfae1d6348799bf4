#!/usr/bin/env bash
# Runs nvcc as told and keeps what ptxas says of registers, spills and shared memory beside the object file, in
# OBJECT.resources. Everything else it says goes on to standard error.
#   keep_resources.sh nvcc ARGUMENTS... -o OBJECT
set -uo pipefail
object=
previous=
for argument in "$@"; do
  [[ $previous != -o ]] || object=$argument
  previous=$argument
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$@" 2>"$log" || status=$?
if ((status == 0)) && [[ -n $object ]]; then
  grep -E '^ptxas info|bytes stack frame' "$log" >"$object.resources" || true
fi
grep -vE '^ptxas info|bytes stack frame' "$log" >&2 || true
exit "$status"
