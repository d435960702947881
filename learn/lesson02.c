#include "lesson02.h"

#include <dlfcn.h>

// The attribute is not part of the library's interface: only this lesson needs it.
int learn_pageable_access(int device) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return -1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*get)(int *, int) = (int (*)(int *, int))dlsym(driver, "cuDeviceGet");
  int (*attribute)(int *, int, int) = (int (*)(int *, int, int))dlsym(driver, "cuDeviceGetAttribute");
  int handle, value = -1;
  if (!init || !get || !attribute || init(0) || get(&handle, device) || attribute(&value, 88, handle)) value = -1;
  dlclose(driver);
  return value;
}
