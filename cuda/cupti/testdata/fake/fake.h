// What a test says and asks of the fake, which exports one as "fake".
#include "../../recorder.h"

typedef struct {
  int32_t dirty;             // how often the program did not give a buffer of zeros
  int32_t subscribed;        // CUPTI has a subscriber
  int32_t enabled;           // kinds of activity that are recorded
  int32_t system_threads;    // ids of threads are those of the system
  int32_t all_syncs;         // queries of events that have not happened are recorded
  int32_t names_subscriber;  // the headers are of a CUPTI that says who subscribed
} fake_seen;

typedef struct {
  fake_seen seen;
  void (*reset)(uint32_t version);
  void (*fail)(const char *call, int code);
  void (*record)(const gs_cupti_record *r);
  uint32_t (*call)(int driver, uint32_t id, uint64_t start, uint64_t end);
  void (*node)(uint64_t node, uint64_t origin);
  void (*damage)(void);
  void (*complete)(void);
  void (*fatal)(int code);
} gs_fake;
