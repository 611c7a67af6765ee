/* Runs the parallel loops of kernels on a fixed set of threads.
 *
 * A kernel calls through the pointer __TVMBackendParallelLaunch. Its object file holds a weak, null definition of it;
 * the one here is strong and wins at link time, so nothing has to be set at run time, and a program without parallel
 * kernels links just as well.
 *
 * A task is a fixed share of the loop: task i of n computes the same iterations in every run, whichever thread has it.
 */
#ifndef EDGE_BARE_METAL
#define _GNU_SOURCE
#endif

#include "internal.h"

/* TVM's TVMParallelGroupEnv: kernels read num_task to find their share. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} parallel_environment;

typedef int (*parallel_lambda)(int task, parallel_environment* environment, void* closure);

static int launch(parallel_lambda lambda, void* closure, int num_task);

extern int (*const __TVMBackendParallelLaunch)(parallel_lambda, void*, int);
int (*const __TVMBackendParallelLaunch)(parallel_lambda, void*, int) = launch;

static int run_serially(parallel_lambda lambda, void* closure, int num_task) {
  parallel_environment environment = {NULL, num_task};
  for (int task = 0; task < num_task; task++) {
    const int status = lambda(task, &environment, closure);
    if (status != 0) return status;
  }
  return 0;
}

#ifdef EDGE_NO_THREADS

static int launch(parallel_lambda lambda, void* closure, int num_task) {
  return run_serially(lambda, closure, num_task > 0 ? num_task : 1);
}

int32_t edge_threads_open(int32_t threads) {
  (void)threads; /* a build without threads runs any program on one */
  return EDGE_OK;
}

void edge_threads_close(void) {}

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

/* How long a thread looks for work before it sleeps. Two kernels in a row are some microseconds apart, a sleep and a
 * wake-up cost tens: this many looks, 20 to 100 us, bridge the gap. */
enum { SPINS = 2000 };

/* Kernels keep at most some KB on the stack; the default of 8 MB a thread would count against RLIMIT_AS. */
enum { STACK_BYTES = 256 * 1024 };

static struct {
  int32_t threads; /* with the caller */
  int32_t spins;
  pthread_t workers[EDGE_MAX_THREADS - 1];
  pthread_mutex_t mutex;
  pthread_cond_t work; /* a new generation began */
  pthread_cond_t done; /* the last worker finished */
  atomic_uint generation;
  atomic_int unfinished; /* workers still busy with this generation */
  atomic_int sleeping;   /* workers waiting for `work` */
  atomic_int waiting;    /* 1 while the caller waits for `done` */
  /* The job: written before the generation begins, read-only until unfinished is 0. */
  parallel_lambda lambda;
  void* closure;
  parallel_environment environment;
  bool stop;
  int status[EDGE_MAX_THREADS];
} pool = {.threads = 1, .mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* True in a thread that runs a task: a parallel loop inside a task runs serially there. */
static _Thread_local bool inside_task = false;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
  __asm__ __volatile__("yield");
#endif
}

/* Tasks thread, thread + threads, ...: static, so a run can be repeated. */
static void run_share(int thread) {
  inside_task = true;
  pool.status[thread] = 0;
  for (int task = thread; task < pool.environment.num_task; task += pool.threads) {
    const int status = pool.lambda(task, &pool.environment, pool.closure);
    if (status != 0) {
      pool.status[thread] = status;
      break;
    }
  }
  inside_task = false;
}

static void await_generation_after(unsigned seen) {
  for (int32_t spin = 0; spin < pool.spins; spin++) {
    if (atomic_load(&pool.generation) != seen) return;
    relax();
  }
  pthread_mutex_lock(&pool.mutex);
  /* The launcher raises `generation`, then looks at `sleeping`; we do it the other way round. Both are sequentially
   * consistent, so one of the two sees the other, and the mutex keeps the broadcast from falling before the wait. */
  atomic_fetch_add(&pool.sleeping, 1);
  while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.work, &pool.mutex);
  atomic_fetch_sub(&pool.sleeping, 1);
  pthread_mutex_unlock(&pool.mutex);
}

#if defined(__linux__) && !defined(__ANDROID__) /* whose C library cannot say on which cores a thread may run */

/* Where workers may run: wherever the launcher may, but for the core that it is on. Linux likes to wake a thread on the
 * core of the one that woke it, and there it would wait until the launcher's own share is done: two threads then take
 * as long as one. Only the launcher reads and writes this. */
static struct {
  bool restricted; /* false: more threads than cores, leave it to the system */
  int launcher;    /* the core that workers are kept off, -1 at first */
  cpu_set_t allowed;
} cores;

static long count_cores(void) {
  if (sched_getaffinity(0, sizeof cores.allowed, &cores.allowed) == 0) return CPU_COUNT(&cores.allowed);
  CPU_ZERO(&cores.allowed); /* more cores than cpu_set_t has bits */
  return sysconf(_SC_NPROCESSORS_ONLN);
}

static void open_cores(int32_t threads) {
  cores.restricted = CPU_COUNT(&cores.allowed) >= threads;
  cores.launcher = -1;
}

static void keep_workers_off_this_core(void) {
  const int here = cores.restricted ? sched_getcpu() : -1;
  if (here < 0 || here == cores.launcher) return;
  cores.launcher = here;
  cpu_set_t others = cores.allowed;
  CPU_CLR(here, &others);
  for (int32_t worker = 0; worker < pool.threads - 1; worker++) {
    /* It fails where the system took cores away since; the thread then runs where it may. */
    pthread_setaffinity_np(pool.workers[worker], sizeof others, &others);
  }
}

#else

static long count_cores(void) { return sysconf(_SC_NPROCESSORS_ONLN); }
static void open_cores(int32_t threads) { (void)threads; }
static void keep_workers_off_this_core(void) {}

#endif

static void begin_generation(void) {
  atomic_store(&pool.unfinished, pool.threads - 1);
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleeping) > 0) {
    keep_workers_off_this_core();
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
  }
}

static void finish_share(void) {
  if (atomic_fetch_sub(&pool.unfinished, 1) == 1 && atomic_load(&pool.waiting) != 0) {
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
  }
}

static void await_workers(void) {
  for (int32_t spin = 0; spin < pool.spins; spin++) {
    if (atomic_load(&pool.unfinished) == 0) return;
    relax();
  }
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&pool.waiting, 1); /* before the look at `unfinished`, as above */
  while (atomic_load(&pool.unfinished) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
  atomic_store(&pool.waiting, 0);
  pthread_mutex_unlock(&pool.mutex);
}

static void* work(void* argument) {
  const int thread = (int)(intptr_t)argument;
  /* 0, not the current value: edge_threads_open resets it before any thread starts, and the first launch may come
   * before this thread runs. */
  for (unsigned seen = 0;; seen++) {
    await_generation_after(seen);
    if (pool.stop) return NULL;
    run_share(thread);
    finish_share();
  }
}

static int launch(parallel_lambda lambda, void* closure, int num_task) {
  if (inside_task || pool.threads == 1) return run_serially(lambda, closure, num_task > 0 ? num_task : 1);
  pool.lambda = lambda;
  pool.closure = closure;
  pool.environment.sync_handle = NULL;
  pool.environment.num_task = num_task > 0 ? num_task : pool.threads;
  begin_generation();
  run_share(0);
  await_workers();
  for (int thread = 0; thread < pool.threads; thread++) {
    if (pool.status[thread] != 0) return pool.status[thread];
  }
  return 0;
}

static void stop_workers(int32_t started) {
  pool.stop = true;
  pool.threads = started + 1;
  begin_generation();
  for (int32_t index = 0; index < started; index++) pthread_join(pool.workers[index], NULL);
  pool.threads = 1;
}

int32_t edge_threads_open(int32_t threads) {
  pool.spins = threads <= count_cores() ? SPINS : 0; /* a spin would keep the thread it waits for off the core */
  open_cores(threads);
  pool.stop = false;
  atomic_store(&pool.generation, 0);
  /* Before the threads start: creation is what makes it visible to them. */
  pool.threads = threads;

  pthread_attr_t attributes;
  int system_error = pthread_attr_init(&attributes);
  if (system_error != 0) {
    pool.threads = 1;
    edge_describe("a worker thread could not be started", system_error);
    return EDGE_ERROR_THREADS;
  }
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  /* The application's signal handlers (Ctrl-C) run in its own threads, never in ours. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int32_t started = 0;
  while (started < threads - 1 && system_error == 0) {
    system_error = pthread_create(&pool.workers[started], &attributes, work, (void*)(intptr_t)(started + 1));
    if (system_error == 0) started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (system_error == 0) return EDGE_OK;

  stop_workers(started);
  edge_describe("a worker thread could not be started", system_error);
  return EDGE_ERROR_THREADS;
}

void edge_threads_close(void) {
  if (pool.threads > 1) stop_workers(pool.threads - 1);
}

#endif
