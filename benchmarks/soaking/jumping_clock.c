/* The wall clock of a process, moved by the seconds in a file that another process writes while this one runs.

   Loaded with LD_PRELOAD. Monotonic clocks and the times of files are left alone, as when somebody sets the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t* moved_s;

__attribute__((constructor)) static void open_offset(void) {
  const char* path = getenv("EDGETRAIN_SOAK_CLOCK");
  int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void* page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
  if (page != MAP_FAILED) moved_s = page;
  close(descriptor);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  long status = syscall(SYS_clock_gettime, clock, now);
  if (status == 0 && moved_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *moved_s;
  return (int)status;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* where) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (where) *where = now.tv_sec;
  return now.tv_sec;
}
