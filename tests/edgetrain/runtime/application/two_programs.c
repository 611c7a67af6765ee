/* two_programs: two libraries in one process, which must leave each other alone. They page, and have the same layout.
 *
 * First both train at once, each on a thread and in an arena of its own. Then one follows the other in one arena while
 * transfers of the first are under way.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edgetrain_model.h"

enum { ROUNDS = 20, TRANSFERS = 40, PAGE_BYTES = 4096, THREADS = 3, WORDS = 256, BYTES_PER_SECOND = 20000000 };

typedef struct {
  int32_t (*open)(void*, size_t, int32_t, const char*);
  int32_t (*step)(void);
  int32_t (*evaluate)(void);
  void (*close)(void);
  const char* (*error)(void);
  void (*throttle)(uint64_t);
  int32_t (*start_write)(uint32_t, const void*);
  int32_t (*start_read)(uint32_t, void*);
} program;

static uint8_t begin[EDGE_PERSISTENT_BYTES], end[EDGE_PERSISTENT_BYTES];

#define CLAIM(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: `%s` does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static void read_file(const char* path, uint8_t* to) {
  FILE* const file = fopen(path, "rb");
  CLAIM(file != NULL);
  CLAIM(fread(to, 1, EDGE_PERSISTENT_BYTES, file) == EDGE_PERSISTENT_BYTES);
  fclose(file);
}

static void find(void* library, const char* name, void* function) {
  void* const found = dlsym(library, name);
  CLAIM(found != NULL);
  memcpy(function, &found, sizeof found);
}

static program load(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CLAIM(library != NULL);
  program loaded;
  find(library, "edge_open", &loaded.open);
  find(library, "edge_step", &loaded.step);
  find(library, "edge_evaluate", &loaded.evaluate);
  find(library, "edge_close", &loaded.close);
  find(library, "edge_error", &loaded.error);
  find(library, "edge_page_throttle", &loaded.throttle);
  find(library, "edge_page_start_write", &loaded.start_write);
  find(library, "edge_page_start_read", &loaded.start_read);
  return loaded;
}

static uint8_t* new_arena(void) {
  void* arena = NULL;
  CLAIM(posix_memalign(&arena, PAGE_BYTES, EDGE_ARENA_BYTES) == 0);
  return arena;
}

static void train(const program* one, uint8_t* arena) {
  memset(arena, 0xA5, EDGE_ARENA_BYTES);
  memcpy(arena, begin, EDGE_PERSISTENT_BYTES);
  for (int step = 0; step < 2; step++) CLAIM(one->step() == EDGE_OK);
  CLAIM(one->evaluate() == EDGE_OK);
  CLAIM(memcmp(arena, end, EDGE_PERSISTENT_BYTES) == 0);
}

static void* train_often(void* argument) {
  const program* const one = argument;
  uint8_t* const arena = new_arena();
  for (int round = 0; round < ROUNDS; round++) {
    CLAIM(one->open(arena, EDGE_ARENA_BYTES, THREADS, "pages") == EDGE_OK);
    train(one, arena);
    one->close();
  }
  free(arena);
  return NULL;
}

/* Leaves while its page file is being read and written: closing has to wait, for `next` takes the arena at once. */
static void follow(const program* first, const program* next, uint8_t* arena) {
  CLAIM(first->open(arena, EDGE_ARENA_BYTES, THREADS, "pages") == EDGE_OK);
  train(first, arena);
  first->throttle(BYTES_PER_SECOND);
  for (int transfer = 0; transfer < TRANSFERS; transfer++) {
    uint8_t* const place = arena + EDGE_PERSISTENT_BYTES;
    CLAIM((transfer % 2 == 0 ? first->start_write(0, place) : first->start_read(0, place)) == EDGE_OK);
  }
  first->close();
  first->throttle(0);
  CLAIM(next->open(arena, EDGE_ARENA_BYTES, THREADS, "pages") == EDGE_OK);
  train(next, arena);
  next->close();
  char words[WORDS];
  snprintf(words, sizeof words, "%s", next->error());
  CLAIM(first->open(NULL, 0, 0, NULL) == EDGE_ERROR_ARGUMENT);
  CLAIM(strcmp(next->error(), words) == 0);
}

int main(void) {
  read_file("persistent.bin", begin);
  read_file("expected.bin", end);
  program one = load("./one.so"), other = load("./other.so");
  pthread_t threads[2];
  CLAIM(pthread_create(&threads[0], NULL, train_often, &one) == 0);
  CLAIM(pthread_create(&threads[1], NULL, train_often, &other) == 0);
  for (int i = 0; i < 2; i++) CLAIM(pthread_join(threads[i], NULL) == 0);
  uint8_t* const arena = new_arena();
  follow(&one, &other, arena);
  follow(&other, &one, arena);
  free(arena);
  return 0;
}
