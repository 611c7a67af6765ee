/* misuse THREADS: what an application may get wrong is refused with the documented code, and changes nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "session.h"

enum { PATH_BYTES = 5000 };

static const uint32_t stored_tensors = EDGE_STORED_TENSORS;

static void is_closed(void) {
  uint8_t byte = 0;
  CLAIM(edge_step() == EDGE_ERROR_STATE);
  CLAIM(edge_evaluate() == EDGE_ERROR_STATE);
  CLAIM(edge_stored_read(0, &byte) == EDGE_ERROR_STATE);
  CLAIM(edge_stored_write(0, &byte) == EDGE_ERROR_STATE);
  CLAIM(strstr(edge_error(), "edge_open") != NULL);
}

static void refuses_to_open(int32_t status, void* arena, size_t nbytes, int32_t threads, const char* directory) {
  CLAIM(edge_open(arena, nbytes, threads, directory) == status);
  CLAIM(strcmp(edge_error(), "no error") != 0);
  is_closed();
}

static void opening(void) {
  uint8_t* const arena = session_arena();
  const int32_t wrong = EDGE_ERROR_ARGUMENT;
  refuses_to_open(wrong, NULL, EDGE_ARENA_BYTES, 1, "pages");
  refuses_to_open(wrong, arena, EDGE_ARENA_BYTES - 1, 1, "pages");
  refuses_to_open(wrong, arena, 0, 1, "pages");
  refuses_to_open(wrong, arena + EDGE_ARENA_ALIGNMENT / 2, EDGE_ARENA_BYTES, 1, "pages");
  const int32_t counts[] = {0, -1, INT32_MIN, EDGE_MAX_THREADS + 1, INT32_MAX};
  for (size_t i = 0; i < 5; i++) refuses_to_open(wrong, arena, EDGE_ARENA_BYTES, counts[i], "pages");
#if EDGE_PAGE_SLOTS > 0
  static char long_path[PATH_BYTES];
  memset(long_path, 'x', PATH_BYTES - 1);
  const char* const directories[] = {NULL, "", "missing", "persistent.bin", long_path};
  for (size_t i = 0; i < 5; i++) {
    refuses_to_open(EDGE_ERROR_PAGE_FILE, arena, EDGE_ARENA_BYTES, 3, directories[i]);
  }
#endif
}

static void slots(void) {
  static uint8_t memory[1 << 16];
  const uint32_t wrong[] = {EDGE_STORED_TENSORS, EDGE_PAGE_SLOTS, EDGE_PAGE_SLOTS + 1, UINT32_MAX};
  for (size_t i = 0; i < 4; i++) {
    if (wrong[i] < stored_tensors) continue;
    CLAIM(edge_stored_read(wrong[i], memory) == EDGE_ERROR_ARGUMENT);
    CLAIM(edge_stored_write(wrong[i], memory) == EDGE_ERROR_ARGUMENT);
    CLAIM(strstr(edge_error(), "slot") != NULL);
  }
#if EDGE_STORED_TENSORS > 0
  CLAIM(edge_stored_read(0, NULL) == EDGE_ERROR_ARGUMENT);
  CLAIM(edge_stored_write(0, NULL) == EDGE_ERROR_ARGUMENT);
  CLAIM(strstr(edge_error(), "NULL") != NULL);
#endif
}

/* Values that the driver looks at: int64, each out of bounds at the first place or at the last one. */
static void values_out_of_bounds(size_t offset, size_t nbytes) {
  static uint8_t before[EDGE_PERSISTENT_BYTES];
  const int64_t wrong[] = {INT64_MIN, INT64_MAX, -1000, 1000, (int64_t)1 << 32};
  const size_t places[] = {0, nbytes / sizeof(int64_t) - 1};
  for (size_t i = 0; i < 10; i++) {
    CLAIM(session_fill() == EDGE_OK);
    memcpy(session_arena() + offset + places[i % 2] * sizeof(int64_t), &wrong[i / 2], sizeof(int64_t));
    memcpy(before, session_arena(), EDGE_PERSISTENT_BYTES);
    CLAIM(edge_step() == EDGE_ERROR_DATA);
    CLAIM(strstr(edge_error(), "at index") != NULL);
    CLAIM(memcmp(before, session_arena(), EDGE_PERSISTENT_BYTES) == 0);
  }
}

static void inputs(void) {
  (void)values_out_of_bounds;
#ifdef EDGE_OFFSET_TRAIN_LABELS
  values_out_of_bounds(EDGE_OFFSET_TRAIN_LABELS, EDGE_BYTES_TRAIN_LABELS);
#endif
#ifdef EDGE_OFFSET_IDS
  values_out_of_bounds(EDGE_OFFSET_IDS, EDGE_BYTES_IDS);
#endif
#ifdef EDGE_OFFSET_X /* tiny_kernels.c: the fourth kernel fails when asked to */
  CLAIM(session_fill() == EDGE_OK);
  const float asked = -1.0f;
  memcpy(session_arena() + EDGE_OFFSET_X, &asked, sizeof asked);
  CLAIM(edge_step() == 4);
#endif
}

/* Bounds as wide as the type, nothing to look at, and words as long as they get. */
static void bounds(void) {
  const int64_t values[] = {INT64_MIN, INT64_MAX};
  const uint8_t bytes[] = {0, UINT8_MAX};
  char name[300];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  CLAIM(edge_check_int64(NULL, 0, 0, 0, name) == EDGE_OK);
  CLAIM(edge_check_int64(values, 2, INT64_MIN, INT64_MAX, name) == EDGE_OK);
  CLAIM(edge_check_uint8(bytes, 2, 0, UINT8_MAX, name) == EDGE_OK);
  CLAIM(edge_check_uint8(bytes, 2, 0, UINT8_MAX - 1, name) == EDGE_ERROR_DATA);
  CLAIM(edge_check_int64(values, 2, INT64_MAX, INT64_MAX, name) == EDGE_ERROR_DATA);
  CLAIM(strlen(edge_error()) > 96);
}

/* Places that are skipped, the last one, and the longest words for floats. */
static void regions(void) {
  const edge_region middle = {.rows = 2, .row_step = 3, .start = 1, .count = 1, .step = 1, .length = 1};
  const edge_region nothing = {.rows = 0, .row_step = 3, .start = 1, .count = 1, .step = 1, .length = 1};
  float values[] = {1e30f, 0, NAN, -1e30f, 0, INFINITY};
  char name[300];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  CLAIM(edge_check_region_float32(NULL, &nothing, 0, 0, name) == EDGE_OK);
  CLAIM(edge_check_region_float32(values, &middle, 0, 0, name) == EDGE_OK);
  const float wrong[] = {NAN, INFINITY, -INFINITY, 1e-45f, -8.5e18f, -9e18f, 0.1f, -3.4e38f};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    values[4] = wrong[i];
    CLAIM(edge_check_region_float32(values, &middle, -0.0f, 0, name) == EDGE_ERROR_DATA);
    CLAIM(strstr(edge_error(), "at index 4") != NULL);
    CLAIM(edge_check_region_float32(values, &middle, -8.5e18f, -9.1e18f, name) == EDGE_ERROR_DATA);
  }
}

int main(int argc, char** argv) {
  CLAIM(argc == 2);
  session_begin(atoi(argv[1]));
  CLAIM(edge_error() != NULL);
  edge_close();
  is_closed();
  opening();
  CLAIM(session_open() == EDGE_OK);
  CLAIM(session_train() == EDGE_OK);
  session_remember();
  CLAIM(session_open() == EDGE_ERROR_STATE);
  slots();
  inputs();
  bounds();
  regions();
  CLAIM(session_train() == EDGE_OK); /* whatever was tried before */
  CLAIM(session_matches());
  edge_close();
  edge_close();
  is_closed();
  session_end();
  return 0;
}
