/* One training, as an application would do it: open, fill in parameters and inputs, steps, evaluate, read them back. */
#ifndef SESSION_H
#define SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edgetrain_model.h"

/* Reads persistent.bin and stored.bin of the working directory, and allocates an arena of exactly EDGE_ARENA_BYTES. */
void session_begin(int32_t threads);
void session_end(void);

uint8_t* session_arena(void);

int32_t session_open(void); /* pages in `pages` of the working directory */

/* Puts all that a training begins with where it belongs, and something else everywhere else. */
int32_t session_fill(void);

/* Fills in everything, takes two steps, evaluates, and copies everything out. Stops at the first failure. */
int32_t session_train(void);

/* From now on, what the last session_train left is what every other has to leave. */
void session_remember(void);
bool session_matches(void);
void session_write(const char* path); /* what session_remember kept: the arena's persistent part, then what is stored */

/* Ends the process with exit code 1. */
_Noreturn void session_fail(const char* claim, const char* file, int line);

#define CLAIM(condition)                                              \
  do {                                                                \
    if (!(condition)) session_fail(#condition, __FILE__, __LINE__);   \
  } while (0)

#endif
