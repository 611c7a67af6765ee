/* What the driver of a program for a GPU calls. Not for applications: they use edgetrain.h, as with any program.
 *
 * The arena that the application gives to edge_open holds the persistent tensors, between calls. The device has an arena
 * of the same size; a call copies what it reads there and back what it has written. A span is a tensor's place in it.
 *
 * Launches run one after the other, in the order that they were asked for. Only copies wait for the device.
 * Each function returns EDGE_OK, or one of EDGE_ERROR_* with the words for edge_error().
 */
#ifndef EDGE_DEVICE_H
#define EDGE_DEVICE_H

#include "internal.h"

typedef struct {
  uint64_t offset;
  uint64_t nbytes;
} edge_device_span;

typedef struct {
  uint32_t function; /* its place in edge_device.functions */
  uint32_t groups[3];
  uint32_t threads[3]; /* of one group */
  uint32_t count;
  const uint16_t* spans; /* what the function is given: places in edge_device.spans */
} edge_device_launch;

/* Facts about the program, defined by the driver. */
typedef struct {
  uint64_t alignment; /* every span begins at a multiple of this */
  uint32_t function_count;
  uint32_t span_count;
  const char* const* functions; /* names, as in the source */
  const edge_device_span* spans;
} edge_device_facts;

extern const edge_device_facts edge_device;
extern void* edge_device_functions[]; /* room for the runtime: a handle for each function, and for each span */
extern void* edge_device_buffers[];
extern const char edge_device_source[]; /* OpenCL C, ended by a zero byte */

int32_t edge_device_open(uint64_t arena_bytes);
void edge_device_close(void);
int32_t edge_device_write(uint32_t span, const void* from);
int32_t edge_device_read(uint32_t span, void* to);
int32_t edge_device_run(const edge_device_launch* launch);
int32_t edge_device_finish(void); /* waits for all launches */

/* In a driver function: launch function number `function` for op number `index`, with groups and threads of three extents
 * each, and leave the driver function if it fails. A program that is built to be profiled waits for the device. */
#define EDGE_EXTENTS(x, y, z) {x##u, y##u, z##u}
#ifdef EDGE_PROFILE
#define EDGE_RUN_LAUNCH(index, launch)                                  \
  edge_profile_begin();                                                 \
  int32_t edge_status = edge_device_run(launch);                        \
  if (edge_status == EDGE_OK) edge_status = edge_device_finish();       \
  edge_profile_end(index)
#else
#define EDGE_RUN_LAUNCH(index, launch) const int32_t edge_status = edge_device_run(launch)
#endif
#define EDGE_LAUNCH(index, function, groups, threads, ...)                                                         \
  do {                                                                                                             \
    static const uint16_t edge_spans[] = {__VA_ARGS__};                                                            \
    static const edge_device_launch edge_launch = {                                                                \
        function, EDGE_EXTENTS groups, EDGE_EXTENTS threads, sizeof edge_spans / sizeof *edge_spans, edge_spans};  \
    EDGE_RUN_LAUNCH(index, &edge_launch);                                                                          \
    if (edge_status != EDGE_OK) return edge_fail(edge_status);                                                     \
  } while (0)

#endif
