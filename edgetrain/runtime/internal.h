/* What the generated driver and the runtime's files share. Not for applications. */
#ifndef EDGETRAIN_INTERNAL_H
#define EDGETRAIN_INTERNAL_H

#include "edgetrain.h"

#ifdef EDGE_BARE_METAL
#define EDGE_NO_THREADS 1
#endif

/* Facts about the program, defined by the driver. The layout is read from Python too: append only, and raise EDGE_ABI. */
typedef struct {
  uint64_t abi;
  uint64_t arena_bytes;
  uint64_t persistent_bytes;
  uint64_t saved_bytes;
  uint64_t page_file_bytes;
} edge_program_facts;

/* Where one tensor lives in the page file. */
typedef struct {
  uint64_t file_offset;
  uint64_t nbytes;
} edge_page_slot;

/* What one block of a tensor in the page file was encrypted with: see sealed_pages.c. */
enum { EDGE_PAGE_BLOCK_BYTES = 64 * 1024, EDGE_PAGE_TAG_BYTES = 16 };
typedef struct {
  uint64_t written; /* its number among all blocks written; 0 for one that never was */
  uint8_t tag[EDGE_PAGE_TAG_BYTES];
} edge_page_seal;

extern const edge_program_facts edge_program;
extern const edge_page_slot edge_page_slots[];
extern const uint32_t edge_stored_tensors; /* the first so many slots hold parameters and state between calls */
extern edge_page_seal edge_page_seals[];         /* of programs with EDGE_ENCRYPTED_PAGES alone, as is the next */
extern const uint32_t edge_page_first_seals[]; /* for each slot; the seals of its other blocks follow */

/* arena.c: the open arena, or NULL. */
extern uint8_t* edge_arena;

/* arena.c: ends a failed function. Waits for page traffic, so that nothing writes to the arena afterwards, and keeps
 * the words for edge_error(). Returns `status`. */
int32_t edge_fail(int32_t status);

/* arena.c: keeps the words for a failure; `system_error` is an errno, or 0. */
void edge_describe(const char* what, int system_error);

/* bounds.c: EDGE_OK, or EDGE_ERROR_DATA where one of `count` values is not from `lowest` to `highest`, which their type
 * can hold; edge_error() then names the tensor, the first such value and its index. */
int32_t edge_check_int64(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor);
int32_t edge_check_int32(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor);
int32_t edge_check_int16(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor);
int32_t edge_check_int8(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor);
int32_t edge_check_uint8(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor);

/* `count` runs of `length` values in each of `rows` samples: the places of a region, in the tensor that is flattened. */
typedef struct {
  size_t rows, row_step, start, count, step, length;
} edge_region;

/* bounds.c: as the functions above, for the values of a region. NaN is outside. */
int32_t edge_check_region_int64(const void* values, const edge_region* region, int64_t lowest, int64_t highest,
                                const char* tensor);
int32_t edge_check_region_int32(const void* values, const edge_region* region, int64_t lowest, int64_t highest,
                                const char* tensor);
int32_t edge_check_region_int16(const void* values, const edge_region* region, int64_t lowest, int64_t highest,
                                const char* tensor);
int32_t edge_check_region_int8(const void* values, const edge_region* region, int64_t lowest, int64_t highest,
                               const char* tensor);
int32_t edge_check_region_uint8(const void* values, const edge_region* region, int64_t lowest, int64_t highest,
                                const char* tensor);
int32_t edge_check_region_float32(const void* values, const edge_region* region, float lowest, float highest,
                                  const char* tensor);

/* threads.c */
int32_t edge_threads_open(int32_t threads);
void edge_threads_close(void);

/* pager.c. Transfers are done in the order they were started. A start may wait for room in the queue. */
int32_t edge_page_start_write(uint32_t slot, const void* from);
int32_t edge_page_start_read(uint32_t slot, void* to);
int32_t edge_page_wait(uint32_t slot); /* until no transfer of `slot` is under way */
int32_t edge_page_drain(void);         /* until no transfer is under way; forgets earlier failures */
int32_t edge_pager_open(const char* page_directory, uint64_t page_file_bytes);
void edge_pager_close(void);

/* page_file.c. Each returns 0 or one of EDGE_ERROR_*, having called edge_describe. */
int32_t edge_page_file_open(const char* page_directory, uint64_t page_file_bytes);
int32_t edge_page_file_write(uint64_t file_offset, const void* from, uint64_t nbytes);
int32_t edge_page_file_read(uint64_t file_offset, void* to, uint64_t nbytes);
void edge_page_file_close(void);

/* sealed_pages.c, with EDGE_ENCRYPTED_PAGES: a slot in the open page file. Each returns 0 or one of EDGE_ERROR_*, having
 * called edge_describe. The key is made before the first of them, and forgotten after the last. */
int32_t edge_page_key_make(void);
int32_t edge_sealed_page_write(uint32_t slot, const void* from);
int32_t edge_sealed_page_read(uint32_t slot, void* to);
void edge_page_key_forget(void);

/* In a driver function: run a kernel as op number `index`, or a runtime call, and leave the function if it fails. */
#ifdef EDGE_PROFILE
enum { EDGE_PROFILE_OPS = 1 << 14 };
extern double edge_profile_seconds[EDGE_PROFILE_OPS]; /* profile.c */
void edge_profile_begin(void);
void edge_profile_end(uint32_t index);
#define EDGE_RUN(index, call)                         \
  do {                                                \
    edge_profile_begin();                             \
    const int32_t edge_status = (call);               \
    edge_profile_end(index);                          \
    if (edge_status != 0) return edge_fail((index) + 1); \
  } while (0)
#else
#define EDGE_RUN(index, call)                         \
  do {                                                \
    if ((call) != 0) return edge_fail((index) + 1);   \
  } while (0)
#endif
#define EDGE_TRY(call)                                \
  do {                                                \
    const int32_t edge_status = (call);               \
    if (edge_status != 0) return edge_fail(edge_status); \
  } while (0)

#endif
