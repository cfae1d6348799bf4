/* A CUDA driver that lists one GPU and can do nothing: enough for a command to go on to the tools it starts.
 */
#include <stddef.h>
#include <stdio.h>

int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "NVIDIA H200");
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  *bytes = 1;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)attribute;
  (void)device;
  *value = 9;
  return 0;
}
