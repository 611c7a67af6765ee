/* Seconds of each op, in programs that are built to be profiled (EDGE_PROFILE). Other programs hold nothing of this. */
#ifdef EDGE_PROFILE
#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "internal.h"

double edge_profile_seconds[EDGE_PROFILE_OPS]; /* by op of the function that was called; the caller sets them to 0 */

static double started_s;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void edge_profile_begin(void) { started_s = now_s(); }

void edge_profile_end(uint32_t index) {
  if (index < EDGE_PROFILE_OPS) edge_profile_seconds[index] += now_s() - started_s;
}

#else
typedef int edge_no_profile; /* ISO C wants a declaration in every file */
#endif
