#!/usr/bin/env sh
# Builds the C++ program against the libtorch of this Python's torch: build.sh PYTHON OUTPUT
set -eu
python=${1:-python}
output=${2:-main}
torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
${CXX:-g++} -std=c++20 -O1 "$(dirname "$0")/main.cpp" -o "$output" \
    -I "$torch/include" -I "$torch/include/torch/csrc/api/include" \
    -L "$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -ldl
