#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { NOWHERE = -1 };

/* Written while no other thread runs, but for what is atomic. */
static struct {
  int place, answer;
  long number;
  bool ever_after;
  int always_place, always_answer;
  atomic_long calls;
  atomic_bool struck, struck_direct, direct;
  atomic_long open_files, threads;
} fault = {.place = NOWHERE, .always_place = NOWHERE};

void fault_arm(int place, int answer, long number, bool ever_after) {
  fault.place = place;
  fault.answer = answer;
  fault.number = number;
  fault.ever_after = ever_after;
  atomic_store(&fault.calls, 0);
  atomic_store(&fault.struck, false);
  atomic_store(&fault.struck_direct, false);
}

void fault_always(int place, int answer) {
  fault.always_place = place;
  fault.always_answer = answer;
}

void fault_disarm(void) {
  fault.place = NOWHERE;
  fault.always_place = NOWHERE;
}

bool fault_struck(void) { return atomic_load(&fault.struck); }
bool fault_struck_direct(void) { return atomic_load(&fault.struck_direct); }
long fault_open_files(void) { return atomic_load(&fault.open_files); }
long fault_threads(void) { return atomic_load(&fault.threads); }

/* What this call must answer; 0 to let it through. */
static int answer_at(int place) {
  if (place == fault.always_place) return fault.always_answer;
  if (place != fault.place) return 0;
  const long number = atomic_fetch_add(&fault.calls, 1) + 1;
  if (number < fault.number || (number > fault.number && !fault.ever_after)) return 0;
  if (!atomic_exchange(&fault.struck, true)) atomic_store(&fault.struck_direct, atomic_load(&fault.direct));
  return fault.answer;
}

static int refused(int place) {
  const int answer = answer_at(place);
  if (answer != 0) errno = answer;
  return answer;
}

static int opened(int descriptor) {
  if (descriptor >= 0) atomic_fetch_add(&fault.open_files, 1);
  atomic_store(&fault.direct, false);
  return descriptor;
}

/* Declares the function behind the wrapper, then begins the wrapper. */
#define WRAP(result, function, ...)      \
  result __real_##function(__VA_ARGS__); \
  result __wrap_##function(__VA_ARGS__); \
  result __wrap_##function(__VA_ARGS__)

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return refused(AT_open) ? -1 : opened(__real_open(path, flags, mode));
}

int __real_fcntl(int descriptor, int command, ...);
int __wrap_fcntl(int descriptor, int command, ...);
int __wrap_fcntl(int descriptor, int command, ...) {
  va_list more;
  va_start(more, command);
  const int flags = command == F_SETFL ? va_arg(more, int) : 0;
  va_end(more);
  if (refused(AT_fcntl)) return -1;
  const int done = __real_fcntl(descriptor, command, flags);
  if (command == F_SETFL && done == 0) atomic_store(&fault.direct, (flags & O_DIRECT) != 0);
  return done;
}

WRAP(int, mkostemp, char* path, int flags) { return refused(AT_mkostemp) ? -1 : opened(__real_mkostemp(path, flags)); }

WRAP(int, unlink, const char* path) {
  const int done = __real_unlink(path); /* in any case: what is tested leaves nothing behind */
  return refused(AT_unlink) ? -1 : done;
}

WRAP(int, fallocate, int descriptor, int mode, off_t offset, off_t nbytes) {
  return refused(AT_fallocate) ? -1 : __real_fallocate(descriptor, mode, offset, nbytes);
}

WRAP(int, ftruncate, int descriptor, off_t nbytes) {
  return refused(AT_ftruncate) ? -1 : __real_ftruncate(descriptor, nbytes);
}

WRAP(ssize_t, pwrite, int descriptor, const void* from, size_t nbytes, off_t offset) {
  const int answer = refused(AT_pwrite);
  if (answer == MOVES_NOTHING) return 0;
  if (answer == MOVES_HALF) return __real_pwrite(descriptor, from, (nbytes + 1) / 2, offset);
  return answer != 0 ? -1 : __real_pwrite(descriptor, from, nbytes, offset);
}

WRAP(ssize_t, pread, int descriptor, void* to, size_t nbytes, off_t offset) {
  const int answer = refused(AT_pread);
  if (answer == MOVES_NOTHING) return 0;
  if (answer == MOVES_HALF) return __real_pread(descriptor, to, (nbytes + 1) / 2, offset);
  return answer != 0 ? -1 : __real_pread(descriptor, to, nbytes, offset);
}

WRAP(int, close, int descriptor) {
  atomic_fetch_sub(&fault.open_files, 1);
  const int done = __real_close(descriptor); /* Linux closes it whatever it answers */
  return refused(AT_close) ? -1 : done;
}

WRAP(int, nanosleep, const struct timespec* wanted, struct timespec* left) {
  return refused(AT_nanosleep) ? -1 : __real_nanosleep(wanted, left);
}

WRAP(long, sysconf, int name) { return refused(AT_sysconf) ? -1 : __real_sysconf(name); }

WRAP(int, sched_getaffinity, pid_t process, size_t nbytes, cpu_set_t* cores) {
  return refused(AT_sched_getaffinity) ? -1 : __real_sched_getaffinity(process, nbytes, cores);
}

WRAP(int, sched_getcpu, void) { return refused(AT_sched_getcpu) ? -1 : __real_sched_getcpu(); }

/* These return their error. */
WRAP(int, pthread_attr_init, pthread_attr_t* attributes) {
  const int answer = answer_at(AT_pthread_attr_init);
  return answer != 0 ? answer : __real_pthread_attr_init(attributes);
}

WRAP(int, pthread_attr_setstacksize, pthread_attr_t* attributes, size_t nbytes) {
  const int answer = answer_at(AT_pthread_attr_setstacksize);
  return answer != 0 ? answer : __real_pthread_attr_setstacksize(attributes, nbytes);
}

WRAP(int, pthread_setaffinity_np, pthread_t thread, size_t nbytes, const cpu_set_t* cores) {
  const int answer = answer_at(AT_pthread_setaffinity_np);
  return answer != 0 ? answer : __real_pthread_setaffinity_np(thread, nbytes, cores);
}

WRAP(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) {
  const int answer = answer_at(AT_pthread_create);
  if (answer != 0) return answer;
  const int error = __real_pthread_create(thread, attributes, work, argument);
  if (error == 0) atomic_fetch_add(&fault.threads, 1);
  return error;
}

WRAP(int, pthread_join, pthread_t thread, void** result) {
  const int error = __real_pthread_join(thread, result);
  if (error == 0) atomic_fetch_sub(&fault.threads, 1);
  return error;
}
