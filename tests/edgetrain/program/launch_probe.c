/* Calls the launch hook as a kernel would, and reports what happened. Linked beside tiny_kernels.c. */
#include <stdint.h>

typedef struct {
  void* sync_handle;
  int32_t num_task;
} environment;
typedef int (*lambda)(int task, environment* environment, void* closure);
extern int (*__TVMBackendParallelLaunch)(lambda, void*, int);

typedef struct {
  int32_t runs[256];      /* how often each task ran */
  int32_t num_task[256];  /* what it was told */
  int32_t inner_runs[256];
  int32_t failing_task;   /* -1 for none */
} record;

static int note(int task, environment* shared, void* closure) {
  record* seen = closure;
  seen->runs[task]++;
  seen->num_task[task] = shared->num_task;
  return task == seen->failing_task ? 9 : 0;
}

int32_t edge_test_launch(record* seen, int32_t num_task);
int32_t edge_test_launch(record* seen, int32_t num_task) { return __TVMBackendParallelLaunch(note, seen, num_task); }

typedef struct {
  record* seen;
  int32_t outer_task;
} inner_job;

static int count_inner(int task, environment* shared, void* closure) {
  inner_job* job = closure;
  (void)task;
  job->seen->inner_runs[job->outer_task] += shared->num_task;
  return 0;
}

static int launch_inside(int task, environment* shared, void* closure) {
  inner_job job = {closure, task};
  note(task, shared, closure);
  return __TVMBackendParallelLaunch(count_inner, &job, 0);
}

int32_t edge_test_nested(record* seen, int32_t num_task);
int32_t edge_test_nested(record* seen, int32_t num_task) {
  return __TVMBackendParallelLaunch(launch_inside, seen, num_task);
}

/* Many launches in a row, some after a pause long enough for the workers to fall asleep. */
int32_t edge_test_many(record* seen, int32_t launches);
int32_t edge_test_many(record* seen, int32_t launches) {
  for (int32_t i = 0; i < launches; i++) {
    const int status = __TVMBackendParallelLaunch(note, seen, 0);
    if (status != 0) return status;
    if (i % 64 == 0) {
      for (volatile int32_t wait = 0; wait < 400000; wait++) {
      }
    }
  }
  return 0;
}
