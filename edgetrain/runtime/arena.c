/* Opening and closing a program, and the words for what failed. */
#ifndef EDGE_BARE_METAL
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#endif

#include "internal.h"
#ifdef EDGE_DEVICE
#include "device.h"
#endif

uint8_t* edge_arena = NULL;

#ifdef EDGE_BARE_METAL

static const char* last_error = "no error";

void edge_describe(const char* what, int system_error) {
  (void)system_error;
  last_error = what;
}

#else

static char last_error[256] = "no error";

void edge_describe(const char* what, int system_error) {
  if (system_error == 0) {
    snprintf(last_error, sizeof last_error, "%s", what);
  } else {
    snprintf(last_error, sizeof last_error, "%s: %s", what, strerror(system_error));
  }
}

#endif

const char* edge_error(void) { return last_error; }

static int32_t refuse(int32_t status, const char* what) {
  edge_describe(what, 0);
  return status;
}

int32_t edge_open(void* arena, size_t arena_bytes, int32_t threads, const char* page_directory) {
  if (edge_arena != NULL) return refuse(EDGE_ERROR_STATE, "the program is open already");
  if (arena == NULL || arena_bytes < edge_program.arena_bytes) {
    return refuse(EDGE_ERROR_ARGUMENT, "the arena is smaller than EDGE_ARENA_BYTES");
  }
  if ((uintptr_t)arena % EDGE_ARENA_ALIGNMENT != 0) {
    return refuse(EDGE_ERROR_ARGUMENT, "the arena is not aligned to EDGE_ARENA_ALIGNMENT bytes");
  }
  if (threads < 1 || threads > EDGE_MAX_THREADS) {
    return refuse(EDGE_ERROR_ARGUMENT, "the thread count is not between 1 and EDGE_MAX_THREADS");
  }
  int32_t status = edge_threads_open(threads);
  if (status != EDGE_OK) return status;
#ifdef EDGE_BARE_METAL
  (void)page_directory; /* nothing here may name pager.c, or every application would have to supply the callbacks */
#else
  if (edge_program.page_file_bytes > 0) {
    status = edge_pager_open(page_directory, edge_program.page_file_bytes);
    if (status != EDGE_OK) {
      edge_threads_close();
      return status;
    }
  }
#endif
#ifdef EDGE_DEVICE
  status = edge_device_open(edge_program.arena_bytes);
  if (status != EDGE_OK) {
    edge_threads_close();
    return status;
  }
#endif
  edge_arena = arena;
  return EDGE_OK;
}

void edge_close(void) {
  if (edge_arena == NULL) return;
#ifndef EDGE_BARE_METAL
  if (edge_program.page_file_bytes > 0) edge_pager_close();
#endif
#ifdef EDGE_DEVICE
  edge_device_close();
#endif
  edge_threads_close();
  edge_arena = NULL;
}

int32_t edge_fail(int32_t status) {
  if (status == EDGE_ERROR_STATE) {
    edge_describe("the program is not open: call edge_open first", 0);
    return status;
  }
#ifndef EDGE_BARE_METAL
  /* A write may be reading the arena, a read writing to it: neither may outlive the call. */
  if (edge_program.page_file_bytes > 0) (void)edge_page_drain();
#endif
  if (status > 0) edge_describe("a kernel failed", 0);
  return status;
}
