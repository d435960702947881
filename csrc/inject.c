// Recording a program that knows nothing of it: see GS_SPOOL_ENV in cuda/cupti/recorder.h. What the program calls only
// puts records into a batch; a thread of this library's own, the worker, does the rest. Nothing here prints, and what
// fails is said in the spool's header.
#define _GNU_SOURCE
#include "../cuda/cupti/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

enum {
  TICK = 10,             // ms between looks at the control
  TICKS_PER_FLUSH = 40,  // what a killed process loses is at most so old
  TEXTS = 1 << 14,
  MOST_TEXT = 1 << 15,   // bytes of a name
  ROOM = 1 << 18,
  WAIT = 2,              // s at most for the worker at the exit of the program
};

static struct {
  pthread_mutex_t work;  // held by who calls CUPTI's part, or writes the header; CUPTI may fork
  gs_spool_control *control;
  const gs_cupti_table *cupti;  // once it is open
  int recording, over;
  int age;                      // ticks since recording was switched last

  pthread_mutex_t batching;  // guards what follows
  int spool;                 // file; -1 before attach
  gs_spool_header header;
  size_t filled, records;     // bytes and records of the batch
  uint64_t texts[TEXTS];      // hashes of the texts that the spool has, by their lowest bits
  char batch[ROOM];
} w = {.work = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .batching = PTHREAD_MUTEX_INITIALIZER, .spool = -1};

static uint64_t monotonic(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static __thread uint32_t thread;

static uint32_t this_thread(void) {
  if (!thread) thread = (uint32_t)syscall(SYS_gettid);
  return thread;
}

// write_batch appends the batch to the spool. The caller holds batching.
static void write_batch(void) {
  if (!w.filled || w.spool < 0) return;
  int64_t n = (int64_t)w.filled;
  if (__atomic_add_fetch(&w.control->used, n, __ATOMIC_RELAXED) > w.control->limit) {
    __atomic_sub_fetch(&w.control->used, n, __ATOMIC_RELAXED);
    n = 0;
  }
  size_t done = 0;
  while (done < (size_t)n) {
    ssize_t k = pwrite(w.spool, w.batch + done, (size_t)n - done,
                       (off_t)(sizeof(w.header) + (size_t)w.header.size + done));
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) {
      w.header.failure = k ? errno : ENOSPC;
      __atomic_sub_fetch(&w.control->used, n, __ATOMIC_RELAXED);
      n = 0;
      break;
    }
    done += (size_t)k;
  }
  w.header.size += n;
  if (!n) {
    w.header.unspooled += w.records;
    memset(w.texts, 0, sizeof(w.texts));  // some were in the batch
  }
  w.filled = w.records = 0;
}

static void append(const gs_cupti_record *r, const char *text) {
  size_t n = text ? (r->name_length + 7u) & ~(size_t)7 : 0;
  memcpy(w.batch + w.filled, r, sizeof(*r));
  w.filled += sizeof(*r);
  if (text) {
    memset(w.batch + w.filled + n - (n ? 8 : 0), 0, n ? 8 : 0);
    memcpy(w.batch + w.filled, text, r->name_length);
    w.filled += n;
  } else {
    w.records++;
  }
}

// text_of returns the hash of a text, and puts the text before what refers to it if the spool may not have it.
static uint64_t text_of(const char *text, uint32_t length) {
  if (!text || !length) return 0;
  if (length > MOST_TEXT) length = MOST_TEXT;
  uint64_t hash = 0xcbf29ce484222325 ^ length;
  uint32_t i = 0;
  for (uint64_t v; i + 8 <= length; i += 8) {
    memcpy(&v, text + i, 8);
    hash = (hash ^ v) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  for (; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3;
  hash |= 1;
  uint64_t *seen = &w.texts[hash >> 20 & (TEXTS - 1)];
  if (*seen != hash) {
    gs_cupti_record r = {.kind = GS_SPOOL_TEXT, .name = (const char *)hash, .name_length = length};
    append(&r, text);
    *seen = hash;
  }
  return hash;
}

// make_room lets the next record and its texts stay together. The caller holds batching.
static void make_room(void) {
  if (w.filled + 4 * (sizeof(gs_cupti_record) + MOST_TEXT) > ROOM) write_batch();
}

static void put(gs_cupti_record *r) {
  r->name = (const char *)text_of(r->name, r->name_length);
  append(r, NULL);
}

// write_header says in the spool how far it goes. The caller holds batching.
static void write_header(void) {
  if (w.spool >= 0 && pwrite(w.spool, &w.header, sizeof(w.header), 0) < 0) w.header.failure = errno;
}

// drain moves what CUPTI has delivered to the spool, and writes it. A CUPTI that does not record is left alone: at the
// exit it may be gone. The caller holds work.
static void drain(int32_t state, int recorded) {
  static gs_cupti_record records[512];
  int32_t n = 0;
  do {
    n = recorded ? w.cupti->drain(records, 512) : 0;
    pthread_mutex_lock(&w.batching);
    for (int32_t i = 0; i < n; i++) {
      make_room();
      put(&records[i]);
    }
    pthread_mutex_unlock(&w.batching);
  } while (n);
  gs_cupti_error ignored;
  pthread_mutex_lock(&w.batching);
  write_batch();
  if (recorded) {
    w.cupti->losses(&w.header.losses);
    w.cupti->state(&w.header.cupti);
    w.cupti->clock(&w.header.last, &ignored);
    if (!w.header.first.uncertainty) w.header.first = w.header.last;
  }
  w.header.state = state;
  write_header();
  pthread_mutex_unlock(&w.batching);
}

// follow starts or stops recording as the control says, and returns whether it recorded since the last call. CUPTI is
// opened when it is first needed, since it slows launches of graphs even while it records nothing. The caller holds work.
static int follow(void) {
  int32_t on = __atomic_load_n(&w.control->on, __ATOMIC_ACQUIRE) > 0, was = w.recording;
  if (on == was || !w.header.cuda || w.header.refused) return was;
  w.age = 0;
  gs_cupti_error error;
  if (!w.cupti) {
    w.header.refused = gs_cupti()->open(w.control->libraries, &w.control->options, &error) != 0;
    if (w.header.refused) {
      w.header.error = error;
      return 0;
    }
    w.cupti = gs_cupti();
  }
  if ((on ? w.cupti->start : w.cupti->stop)(&error)) w.header.error = error;
  w.recording = on;
  return 1;
}

static void end(int32_t state) {
  gs_cupti_error error;
  int was = w.recording;
  if (was && w.cupti->stop(&error) && !w.header.error.text[0]) w.header.error = error;
  w.recording = 0;
  w.over = 1;
  drain(state, was);
  pthread_mutex_lock(&w.batching);
  if (w.spool >= 0) close(w.spool);
  w.spool = -1;
  pthread_mutex_unlock(&w.batching);
}

static void at_exit(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += WAIT;
  if (pthread_mutex_timedlock(&w.work, &until)) return;
  if (w.spool >= 0) end(GS_SPOOL_EXITED);
  pthread_mutex_unlock(&w.work);
}

static void *worker(void *unused) {
  const struct timespec tick = {.tv_nsec = TICK * 1000000};
  for (int n = 1;; n++) {
    nanosleep(&tick, NULL);
    pthread_mutex_lock(&w.work);
    int over = w.spool < 0;
    if (!over && __atomic_load_n(&w.control->on, __ATOMIC_ACQUIRE) < 0) {
      end(GS_SPOOL_STOPPED);
      over = 1;
    }
    if (!over) {
      int recorded = follow();
      gs_cupti_error ignored;
      if (n % TICKS_PER_FLUSH == 0 && w.recording) w.cupti->flush(0, &ignored);
      if (n % TICKS_PER_FLUSH == 0 || !w.age) drain(GS_SPOOL_RUNS, recorded);
      // The last of these runs before what libcupti set up meanwhile goes.
      if (w.recording && !(w.age & (w.age - 1))) atexit(at_exit);
      w.age++;
    }
    pthread_mutex_unlock(&w.work);
    if (over) return unused;
  }
}

// After a fork without exec the child has no worker, and CUPTI does not work there: it begins anew if it starts CUDA or
// uses NVTX itself.
static void before_fork(void) {
  pthread_mutex_lock(&w.work);
  pthread_mutex_lock(&w.batching);
}
static void after_fork(void) {
  pthread_mutex_unlock(&w.batching);
  pthread_mutex_unlock(&w.work);
}
static void in_child(void) {
  if (w.spool >= 0) close(w.spool);
  w.spool = -1;
  w.cupti = NULL;
  w.recording = w.over = w.age = 0;
  w.filled = w.records = 0;
  memset(&w.header, 0, sizeof(w.header));
  memset(w.texts, 0, sizeof(w.texts));
  thread = 0;
  w.work = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;  // whose owner is a thread of the parent
  w.batching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

// attach opens the spool of this process and starts the worker, once. The caller holds work. It returns whether there
// is a spool.
static int attach(void) {
  static int once;
  const char *folder = getenv(GS_SPOOL_ENV);
  if (w.spool >= 0) return 1;
  if (!folder || w.over) return 0;
  char path[4096];
  if (!w.control) {
    snprintf(path, sizeof(path), "%s/control", folder);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return 0;
    void *at = mmap(NULL, sizeof(*w.control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return 0;
    w.control = at;
  }
  if (w.control->version != GS_CUPTI_ABI_VERSION || __atomic_load_n(&w.control->on, __ATOMIC_ACQUIRE) < 0) return 0;
  int spool = -1;
  for (int i = 0; spool < 0 && i < 1000; i++) {  // a process may become another program
    snprintf(path, sizeof(path), "%s/%d.%d", folder, (int)getpid(), i);
    spool = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (spool < 0 && errno != EEXIST) return 0;
  }
  if (spool < 0) return 0;
  pthread_mutex_lock(&w.batching);
  w.spool = spool;
  w.header.version = GS_CUPTI_ABI_VERSION;
  w.header.process = (uint32_t)getpid();
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, w.header.command, sizeof(w.header.command) - 1) < 0) w.header.command[0] = 0;
  if (file >= 0) close(file);
  write_header();
  pthread_mutex_unlock(&w.batching);
  if (!once++) {
    atexit(at_exit);
    pthread_atfork(before_fork, after_fork, in_child);
  }
  sigset_t all, old;
  pthread_t t;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // the program's signals go to its own threads
  if (!pthread_create(&t, NULL, worker, NULL)) pthread_detach(t);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return 1;
}

GS_CUPTI_API int InitializeInjection(void);
GS_CUPTI_API int InitializeInjection(void) {
  pthread_mutex_lock(&w.work);
  if (attach() && !w.header.cuda) {
    w.header.cuda = 1;
    int recorded = follow();
    atexit(at_exit);
    drain(GS_SPOOL_RUNS, recorded);
  }
  pthread_mutex_unlock(&w.work);
  return 1;
}

// NVTX. The types and numbers are those of nvtx3/nvtxDetail/nvtxTypes.h, which never change.

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  union {
    uint64_t u64;
    uint32_t u32;
    int32_t i32;
  } payload;
  int32_t message_type;
  const void *message;
} attributes;

enum { ASCII = 1, UNICODE, REGISTERED };
enum { CATEGORIES = 64 };

typedef struct {
  char *name, *categories[CATEGORIES];
} domain;

static domain default_domain;

// narrow returns wide characters in UTF-8, for the caller to free.
static char *narrow(const wchar_t *wide) {
  char *text = wide ? malloc(4 * wcslen(wide) + 1) : NULL, *to = text;
  if (!text) return NULL;
  for (; *wide; wide++) {
    const uint32_t c = (uint32_t)*wide > 0x10ffff ? 0xfffd : (uint32_t)*wide;
    int more = (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    *to++ = (char)(more ? (0xff00 >> (more + 1)) | c >> 6 * more : c);
    while (more--) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
  }
  *to = 0;
  return text;
}

static void note(uint32_t how, const domain *d, const attributes *a, uint64_t id) {
  gs_cupti_record r = {.kind = GS_SPOOL_RANGE, .detail = how, .correlation = id, .thread = this_thread()};
  if (!d) d = &default_domain;
  char *own = a && a->message_type == UNICODE ? narrow(a->message) : NULL;
  const char *text = own ? own : a ? a->message : NULL;  // a registered text's handle is its copy
  r.name = text;
  r.name_length = text ? (uint32_t)strlen(text) : 0;
  if (a) {
    r.device = a->color_type == 1 ? a->color : 0;
    r.tagged = a->payload_type > 0 && a->payload_type != 3 && a->payload_type != 6;  // no fractions
    r.tag = a->payload_type == 4 ? a->payload.u32 : a->payload_type == 5 ? (uint64_t)a->payload.i32 : a->payload.u64;
  }
  const char *category = a && a->category < CATEGORIES ? d->categories[a->category] : NULL;
  pthread_mutex_lock(&w.batching);
  if (w.spool < 0) {  // after a fork, or the end
    pthread_mutex_unlock(&w.batching);
    pthread_mutex_lock(&w.work);
    int is = attach();
    pthread_mutex_unlock(&w.work);
    if (!is) {
      free(own);
      return;
    }
    pthread_mutex_lock(&w.batching);
  }
  make_room();
  r.process = w.header.process;
  r.origin = text_of(d->name, d->name ? (uint32_t)strlen(d->name) : 0);
  r.node = text_of(category, category ? (uint32_t)strlen(category) : 0);
  r.start = r.end = monotonic();
  put(&r);
  pthread_mutex_unlock(&w.batching);
  free(own);
}

static uint64_t new_range(void) {
  static uint64_t last;
  return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static void d_mark(domain *d, const attributes *a) { note(GS_RANGE_MARK, d, a, 0); }
static uint64_t d_start(domain *d, const attributes *a) {
  uint64_t id = new_range();
  note(GS_RANGE_START, d, a, id);
  return id;
}
static void d_end(domain *d, uint64_t id) { note(GS_RANGE_END, d, NULL, id); }
static int d_push(domain *d, const attributes *a) {
  note(GS_RANGE_PUSH, d, a, 0);
  return 0;
}
static int d_pop(domain *d) {
  note(GS_RANGE_POP, d, NULL, 0);
  return 0;
}
static void mark(const attributes *a) { d_mark(NULL, a); }
static uint64_t range_start(const attributes *a) { return d_start(NULL, a); }
static void range_end(uint64_t id) { d_end(NULL, id); }
static int push(const attributes *a) { return d_push(NULL, a); }
static int pop(void) { return d_pop(NULL); }

static const attributes *plain(attributes *a, int32_t type, const void *text) {
  a->message_type = type;
  a->message = text;
  return a;
}
#define PLAIN(type) plain(&(attributes){0}, type, text)
static void mark_a(const char *text) { mark(PLAIN(ASCII)); }
static void mark_w(const wchar_t *text) { mark(PLAIN(UNICODE)); }
static uint64_t start_a(const char *text) { return range_start(PLAIN(ASCII)); }
static uint64_t start_w(const wchar_t *text) { return range_start(PLAIN(UNICODE)); }
static int push_a(const char *text) { return push(PLAIN(ASCII)); }
static int push_w(const wchar_t *text) { return push(PLAIN(UNICODE)); }
#undef PLAIN

// These own their name, which is never freed.
static void set_category(domain *d, uint32_t id, char *name) {
  if (id < CATEGORIES && name) (d ? d : &default_domain)->categories[id] = name;
}
static domain *new_domain(char *name) {
  domain *d = calloc(1, sizeof(*d));
  if (d) d->name = name;
  return d;
}
static char *copy(const char *text) { return text ? strdup(text) : NULL; }
static void category(uint32_t id, const char *name) { set_category(NULL, id, copy(name)); }
static void category_w(uint32_t id, const wchar_t *name) { set_category(NULL, id, narrow(name)); }
static void d_category(domain *d, uint32_t id, const char *name) { set_category(d, id, copy(name)); }
static void d_category_w(domain *d, uint32_t id, const wchar_t *name) { set_category(d, id, narrow(name)); }
static char *registered(domain *d, const char *text) { return (void)d, copy(text); }
static char *registered_w(domain *d, const wchar_t *text) { return (void)d, narrow(text); }
static domain *create(const char *name) { return new_domain(copy(name)); }
static domain *create_w(const wchar_t *name) { return new_domain(narrow(name)); }

typedef void (*function)(void);
typedef struct {
  size_t size;
  int (*module)(int32_t module, function ***table, uint32_t *size);
} callbacks;

GS_CUPTI_API int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t));
GS_CUPTI_API int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
#define F(f) (function)(f)
  static const function core[] = {[1] = F(mark), F(mark_a), F(mark_w), F(range_start), F(start_a), F(start_w),
                                  F(range_end), F(push), F(push_a), F(push_w), F(pop), F(category), F(category_w)};
  static const function core2[] = {[1] = F(d_mark), F(d_start), F(d_end), F(d_push), F(d_pop), [8] = F(d_category),
                                   F(d_category_w), F(registered), F(registered_w), F(create), F(create_w)};
#undef F
  const struct {
    int32_t id;
    const function *functions;
    uint32_t count;
  } modules[] = {{1, core, sizeof(core) / sizeof(*core)}, {5, core2, sizeof(core2) / sizeof(*core2)}};
  const callbacks *c = export_table(1);
  pthread_mutex_lock(&w.work);
  int is = attach();
  pthread_mutex_unlock(&w.work);
  if (!c || !is) return 0;
  for (int m = 0; m < 2; m++) {
    function **table = NULL;
    uint32_t size = 0;
    if (!c->module(modules[m].id, &table, &size)) continue;
    for (uint32_t i = 1; i < size && i < modules[m].count; i++)
      if (modules[m].functions[i]) *table[i] = modules[m].functions[i];
  }
  return 1;
}
