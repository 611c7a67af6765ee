/* edgetrain: the C interface of a compiled training program.
 *
 * The program is one library: the kernels, a generated driver that calls them in the planned order, and this small
 * runtime. All tensors live in one arena that the caller provides; its size is a compile-time number, EDGE_ARENA_BYTES
 * in edgetrain_model.h. The first part of the arena holds the persistent tensors: parameters and optimizer state (the
 * bytes worth saving, [0, saved_bytes)), then constants, inputs and outputs. Their offsets are in edgetrain_model.h and
 * in the manifest.
 *
 * A program may leave parameters and state in storage between their uses (EDGE_STORED_TENSORS > 0 in edgetrain_model.h,
 * which then has EDGE_SLOT_<NAME> instead of an offset): they are read and written with edge_stored_read and
 * edge_stored_write between calls, and must be written once before the first. On bare metal the application owns the
 * storage: it fills those slots itself.
 *
 * Use:
 *     1. put parameters.bin at the start of the arena,
 *     2. edge_open(...),
 *     3. write the inputs at their offsets, edge_step(), read the loss at its offset; repeat,
 *     4. store [0, saved_bytes) wherever the device keeps things: that is the trained model,
 *     5. edge_close().
 *
 * One program can be open at a time, and one thread at a time may call it. Nothing here calls malloc.
 *
 * A program for a GPU has an arena of the same size in the device's memory, and copies what a call reads and writes. It is
 * used in the same way; of the caller's arena it touches the persistent part alone.
 *
 * Bare metal (EDGE_BARE_METAL): no threads, no files, no libc beyond memcpy and memset; a program that pages calls
 * edge_page_out and edge_page_in, which the application supplies.
 */
#ifndef EDGETRAIN_H
#define EDGETRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a caller or a driver built against another value would misbehave. */
#define EDGE_ABI 1

/* The arena must start at a multiple of this: the widest vector load a kernel may use. */
#define EDGE_ARENA_ALIGNMENT 64

#define EDGE_MAX_THREADS 64

/* What a call returns: 0 for success, a positive number for a failed kernel (the index of its op in the function, plus
 * one), a negative one for these. edge_error() has the words. */
enum {
  EDGE_OK = 0,
  EDGE_ERROR_ARGUMENT = -1,  /* the arena is too small or misaligned, the thread count is out of range, or no stored
                                tensor has that slot */
  EDGE_ERROR_STATE = -2,     /* opened twice, or called before edge_open */
  EDGE_ERROR_THREADS = -3,   /* the system gave no thread */
  EDGE_ERROR_PAGE_FILE = -4, /* the page file could not be made in page_directory */
  EDGE_ERROR_NO_SPACE = -5,  /* the page file does not fit on its disk */
  EDGE_ERROR_PAGE_IO = -6,   /* reading or writing the page file failed, or moved fewer bytes than asked */
  EDGE_ERROR_DATA = -7,      /* a label or an index that the caller wrote is out of bounds; nothing was run */
  EDGE_ERROR_PAGE_DAMAGED = -8, /* encrypted pages: the page file does not hold what was written to it */
  EDGE_ERROR_NO_DEVICE = -9,    /* programs for a GPU, as the next two: there is none, or no driver for it */
  EDGE_ERROR_DEVICE_MEMORY = -10, /* the device has not enough memory */
  EDGE_ERROR_DEVICE = -11         /* the device or its driver failed */
};

/* Checks the arena, starts `threads` threads (the caller counts as one) and makes the page file in `page_directory`.
 * `page_directory` may be NULL for a program that does not page, and on bare metal. The page file has no name: it is
 * gone when the process ends, however it ends. */
int32_t edge_open(void* arena, size_t arena_bytes, int32_t threads, const char* page_directory);

/* The functions of the program; each exists when the manifest lists it.
 * A failed call leaves parameters as the ops before the failure made them: load the last saved bytes again. After
 * EDGE_ERROR_DATA nothing has changed: correct the inputs, or leave the batch out, and go on. */
int32_t edge_step(void);     /* forward, loss, backward and update on the inputs in the arena */
int32_t edge_evaluate(void); /* forward only: the outputs */
int32_t edge_apply(void);    /* the update, when gradients accumulate over several steps */

#ifndef EDGE_BARE_METAL
/* Between calls: copies a stored tensor out of the page file, or into it. `slot` is its EDGE_SLOT_<NAME>. */
int32_t edge_stored_read(uint32_t slot, void* to);
int32_t edge_stored_write(uint32_t slot, const void* from);
#endif

/* Stops the threads, drops the page file and forgets the arena. Does nothing when nothing is open. */
void edge_close(void);

/* The words for the last failure, never NULL; valid until the next call. */
const char* edge_error(void);

/* Limits page traffic, to see on a fast disk what a slow one would do. 0 is no limit. Takes effect at once. */
void edge_page_throttle(uint64_t bytes_per_second);

#ifdef EDGE_BARE_METAL
/* Supplied by the application when the program pages (EDGE_PAGE_SLOTS > 0 in edgetrain_model.h). Slot numbers count
 * from 0; a slot always has the same size. Both return 0 for success and must have finished when they return. */
int32_t edge_page_out(uint32_t slot, const void* from, size_t nbytes);
int32_t edge_page_in(uint32_t slot, void* to, size_t nbytes);
#endif

#ifdef __cplusplus
}
#endif

#endif
