// A program of nothing but the headers that CMake puts before it: see tests/CMakeLists.txt.
int main() {
  return 0;
}
