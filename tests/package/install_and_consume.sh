#!/usr/bin/env bash
# Installs the build tree into a temporary prefix, moves it, and builds and runs a small program against it, found
# once with CMake and once with pkg-config.
#   install_and_consume.sh BUILD_DIR CONSUMER_DIR CXX
set -euo pipefail
build=$1 consumer=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Fails when the command finds something.
refuse() {
  if "$@"; then
    echo "the lines above should not be there"
    exit 1
  fi
}

cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
prefix=$work/moved
mv "$work/first" "$prefix"

echo "== find_package"
cmake -S "$consumer" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" >/dev/null
cmake --build "$work/cmake"
"$work/cmake/consumer"

echo "== pkg-config"
pc=$(find "$prefix" -name saccade.pc)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir saccade)
"$cxx" -std=c++20 "$consumer/main.cpp" $(pkg-config --cflags --libs saccade) -o "$work/consumer"
LD_LIBRARY_PATH=$libdir "$work/consumer"

library=$libdir/libsaccade.so
if [[ -e $library ]]; then
  echo "== what the library needs"
  readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tee "$work/needed"
  refuse grep -vE '^(libhwy|libgomp|libstdc\+\+|libm|libgcc_s|libc|ld-linux[^.]*)\.so' "$work/needed"
  echo "== what it shows besides its own names (nothing)"
  nm -D --defined-only "$library" | awk '{print $3}' >"$work/shown"
  refuse grep -vE '^(saccade_|_ZNK?7saccade)' "$work/shown"
fi

echo "== no header of another project"
refuse grep -rhE '^#include <(fmt|hwy|nlohmann|CLI|omp)' "$prefix/include"

if [[ -x $prefix/bin/saccade ]]; then
  echo "== the installed command"
  "$prefix/bin/saccade" explain b1 h8 l512 d64 f16
fi
