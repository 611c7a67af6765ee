/* walk THREADS: lets every call that the runtime makes to the system fail, one after the other, in every way it may.
 *
 * Each time the documented code comes back, with the system's words for it; nothing stays open; training goes on
 * without closing, and after closing, to the bits of a run that nothing happened to. Prints a line for each way:
 * FUNCTION ANSWER once|ever-after POINTS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "session.h"

enum { NOTHING = -1 };

/* The whole page file in 10 ms: so slow that the pager has to wait, so quick that the walk does not. */
static const uint64_t throttle_bytes_per_second = (uint64_t)EDGE_PAGE_FILE_BYTES * 100;

typedef struct {
  int place;
  int answer;
  int32_t status;       /* what the application is told: EDGE_OK where the runtime can do without */
  int beforehand;       /* a place that always answers with `beforehand_answer`, or NOTHING */
  int beforehand_answer;
  bool can_stay;        /* it may be so for ever, and the status is the same */
} way;

#define NAMED(function) #function,
static const char* const names[] = {FAULT_FUNCTIONS(NAMED)};

#define NO_FILE EDGE_ERROR_PAGE_FILE
#define NO_SPACE EDGE_ERROR_NO_SPACE
#define NO_MOVE EDGE_ERROR_PAGE_IO
#define NO_THREAD EDGE_ERROR_THREADS

static const way ways[] = {
    {AT_open, EACCES, NO_FILE, NOTHING, 0, true},
    {AT_open, EMFILE, NO_FILE, NOTHING, 0, true},
    {AT_open, ENOSPC, NO_SPACE, NOTHING, 0, true},
    {AT_open, EINTR, EDGE_OK, NOTHING, 0, false},
    {AT_open, EOPNOTSUPP, EDGE_OK, NOTHING, 0, true},
    {AT_mkostemp, EACCES, NO_FILE, AT_open, EOPNOTSUPP, true},
    {AT_mkostemp, ENOSPC, NO_SPACE, AT_open, EISDIR, true},
    {AT_mkostemp, EINTR, EDGE_OK, AT_open, EOPNOTSUPP, false},
    {AT_unlink, EIO, NO_FILE, AT_open, EOPNOTSUPP, true},
    {AT_fallocate, ENOSPC, NO_SPACE, NOTHING, 0, true},
    {AT_fallocate, EDQUOT, NO_SPACE, NOTHING, 0, true},
    {AT_fallocate, EFBIG, NO_SPACE, NOTHING, 0, true},
    {AT_fallocate, EIO, NO_FILE, NOTHING, 0, true},
    {AT_fallocate, EINTR, EDGE_OK, NOTHING, 0, false},
    {AT_fallocate, EOPNOTSUPP, EDGE_OK, NOTHING, 0, true},
    {AT_ftruncate, ENOSPC, NO_SPACE, AT_fallocate, EOPNOTSUPP, true},
    {AT_ftruncate, EIO, NO_FILE, AT_fallocate, ENOSYS, true},
    {AT_ftruncate, EINTR, EDGE_OK, AT_fallocate, EOPNOTSUPP, false},
    {AT_fcntl, EINVAL, EDGE_OK, NOTHING, 0, true}, /* the page cache then holds copies */
    {AT_pwrite, ENOSPC, NO_SPACE, NOTHING, 0, true},
    {AT_pwrite, EDQUOT, NO_SPACE, NOTHING, 0, true},
    {AT_pwrite, EIO, NO_MOVE, NOTHING, 0, true},
    {AT_pwrite, EINVAL, EDGE_OK, NOTHING, 0, false},
    {AT_pwrite, EINTR, EDGE_OK, NOTHING, 0, false},
    {AT_pwrite, MOVES_HALF, EDGE_OK, NOTHING, 0, true},
    {AT_pwrite, MOVES_NOTHING, NO_MOVE, NOTHING, 0, true},
    {AT_pwrite, ENOSPC, NO_SPACE, AT_fcntl, EINVAL, true}, /* through the page cache */
    {AT_pread, EIO, NO_MOVE, NOTHING, 0, true},
    {AT_pread, EINVAL, EDGE_OK, NOTHING, 0, false},
    {AT_pread, EINTR, EDGE_OK, NOTHING, 0, false},
    {AT_pread, MOVES_HALF, EDGE_OK, NOTHING, 0, true},
    {AT_pread, MOVES_NOTHING, NO_MOVE, NOTHING, 0, true},
    {AT_pread, EIO, NO_MOVE, AT_fcntl, EINVAL, true},
    {AT_close, EIO, EDGE_OK, NOTHING, 0, true},
    {AT_nanosleep, EINTR, EDGE_OK, NOTHING, 0, false},
    {AT_sysconf, EINVAL, EDGE_OK, AT_sched_getaffinity, EINVAL, true},
    {AT_sched_getaffinity, EINVAL, EDGE_OK, NOTHING, 0, true},
    {AT_sched_getcpu, ENOSYS, EDGE_OK, NOTHING, 0, true},
    {AT_pthread_setaffinity_np, EINVAL, EDGE_OK, NOTHING, 0, true},
    {AT_pthread_attr_init, ENOMEM, NO_THREAD, NOTHING, 0, true},
    {AT_pthread_attr_setstacksize, EINVAL, EDGE_OK, NOTHING, 0, true},
    {AT_pthread_create, EAGAIN, NO_THREAD, NOTHING, 0, true},
    {AT_pthread_create, ENOMEM, NO_THREAD, NOTHING, 0, true},
};

static void trains_as_ever(void) {
  CLAIM(session_train() == EDGE_OK);
  CLAIM(session_matches());
}

static void nothing_is_open(void) {
  CLAIM(fault_open_files() == 0);
  CLAIM(fault_threads() == 0);
  CLAIM(edge_step() == EDGE_ERROR_STATE);
}

static void is_what_was_documented(const way* how, int32_t status) {
  /* Who refuses to go past the page cache is asked to go through it. */
  const bool is_refusal = how->answer == EINVAL && (how->place == AT_pwrite || how->place == AT_pread);
  CLAIM(status == (is_refusal && !fault_struck_direct() ? NO_MOVE : how->status));
  if (status == EDGE_OK) CLAIM(session_matches());
  if (status != EDGE_OK && how->answer > 0) CLAIM(strstr(edge_error(), strerror(how->answer)) != NULL);
}

/* The call with that number fails. Returns false where a run makes fewer. */
static bool strike(const way* how, long number, bool ever_after) {
  fault_always(how->beforehand, how->beforehand_answer);
  fault_arm(how->place, how->answer, number, ever_after);
  const int32_t opened = session_open();
  const int32_t status = opened != EDGE_OK ? opened : session_train();
  const bool struck = fault_struck();
  if (!struck) CLAIM(status == EDGE_OK);
  if (struck) is_what_was_documented(how, status);
  if (opened != EDGE_OK) {
    nothing_is_open();
  } else if (struck && !ever_after) {
    trains_as_ever(); /* without closing: whoever has freed some space goes on */
  }
  edge_close(); /* also while it still fails: nothing may hang */
  const bool struck_in_all = fault_struck();
  nothing_is_open();
  fault_disarm();
  CLAIM(session_open() == EDGE_OK);
  trains_as_ever();
  edge_close();
  return struck_in_all;
}

static void walk(const way* how, bool ever_after) {
  long points = 0;
  while (strike(how, points + 1, ever_after)) points++;
  printf("%s %d %s %ld\n", names[how->place], how->answer, ever_after ? "ever-after" : "once", points);
}

int main(int argc, char** argv) {
  CLAIM(argc == 2);
  session_begin(atoi(argv[1]));
  CLAIM(session_open() == EDGE_OK);
  CLAIM(session_train() == EDGE_OK);
  session_remember();
  session_write("trained.bin");
  edge_close();
  nothing_is_open();
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    edge_page_throttle(ways[i].place == AT_nanosleep ? throttle_bytes_per_second : 0);
    walk(&ways[i], false);
    if (ways[i].can_stay) walk(&ways[i], true);
  }
  session_end();
  return 0;
}
