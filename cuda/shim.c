#include "shim.h"

#include <dlfcn.h>
#include <signal.h>

gs_table *gs_table_open(const char *path, char **error, const char **missing) {
  *error = NULL;
  *missing = NULL;
  gs_table *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!t->handle) {
    const char *text = dlerror();
    *error = strdup(text ? text : "dlopen failed");
    free(t);
    return NULL;
  }
#define X(f)                                             \
  if (!*missing) {                                       \
    t->f = (__typeof__(&f))dlsym(t->handle, #f);         \
    if (!t->f) *missing = #f;                            \
  }
  GS_SYMBOLS(X)
#undef X
  // A library that lacks functions may be of another ABI version, which the caller reports.
  if (*missing && !t->gs_abi_version) {
    gs_table_close(t);
    return NULL;
  }
  return t;
}

void gs_table_close(gs_table *t) {
  if (t->handle) dlclose(t->handle);
  free(t);
}

static struct sigaction kept[32];  // by signal; sa_flags is 0 where there is nothing to put back

void gs_signals_keep(void) {
  for (int s = 1; s < 32; s++) {
    if (sigaction(s, NULL, &kept[s]) || !(kept[s].sa_flags & SA_ONSTACK)) kept[s].sa_flags = 0;
  }
}

void gs_signals_restore(void) {
  for (int s = 1; s < 32; s++) {
    struct sigaction now;
    if (kept[s].sa_flags && !sigaction(s, NULL, &now) && !(now.sa_flags & SA_ONSTACK)) sigaction(s, &kept[s], NULL);
  }
}
