#include "table.h"

#include <dlfcn.h>
#include <stdio.h>

int gs_table_open(const char *path, gs_table *t, uint32_t *version, char *text, size_t text_bytes) {
  memset(t, 0, sizeof *t);
  t->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!t->handle) {
    snprintf(text, text_bytes, "%s", dlerror());
    return GS_NOT_OPENED;
  }
  // The version first: a library of another one may lack functions.
  *(void **)&t->gs_abi_version = dlsym(t->handle, "gs_abi_version");
  const char *missing = t->gs_abi_version ? 0 : "gs_abi_version";
  if (!missing && (*version = t->gs_abi_version()) != GS_ABI_VERSION) {
    gs_table_close(t);
    return GS_VERSION;
  }
#define GS_FIND(name, parameters, arguments) \
  if (!missing && !(*(void **)&t->name = dlsym(t->handle, #name))) missing = #name;
  GS_FIND(gs_error, (), ())
  GS_FIND(gs_variant, (), ())
  GS_FUNCTIONS(GS_FIND)
#undef GS_FIND
  if (!missing) return GS_OPENED;
  snprintf(text, text_bytes, "%s", missing);
  gs_table_close(t);
  return GS_MISSING;
}

void gs_table_close(gs_table *t) {
  if (t->handle) dlclose(t->handle);
  t->handle = 0;
}
