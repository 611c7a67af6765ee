/* What the runtime asks the system for, and how the system may answer. Linked with -Wl,--wrap=FUNCTION for each. */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>

#define FAULT_FUNCTIONS(DO)                                                                                      \
  DO(open) DO(mkostemp) DO(unlink) DO(fallocate) DO(ftruncate) DO(fcntl) DO(pwrite) DO(pread) DO(close)           \
  DO(nanosleep) DO(sysconf) DO(sched_getaffinity) DO(sched_getcpu) DO(pthread_attr_init)                         \
  DO(pthread_attr_setstacksize) DO(pthread_create) DO(pthread_setaffinity_np)

#define FAULT_AS_NUMBER(function) AT_##function,
enum { FAULT_FUNCTIONS(FAULT_AS_NUMBER) FAULT_PLACES };

/* Where an errno would stand. */
enum { MOVES_HALF = -1, MOVES_NOTHING = -2 };

/* From the call with this number on (counted from 1), or that call alone, `place` answers with `answer`. */
void fault_arm(int place, int answer, long number, bool ever_after);
void fault_always(int place, int answer); /* another place, all the time: to come where the runtime goes instead */
void fault_disarm(void);

bool fault_struck(void);
bool fault_struck_direct(void); /* and the page file was past the page cache then */
long fault_open_files(void);    /* descriptors that were opened and not closed */
long fault_threads(void);       /* threads that were started and not joined */

#endif
