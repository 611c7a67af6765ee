#define _POSIX_C_SOURCE 200809L
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { STEPS = 2, PAGE_BYTES = 4096, UNUSED = 0xA5 };

static const uint32_t stored_tensors = EDGE_STORED_TENSORS;

static struct {
  int32_t threads;
  size_t stored_bytes;
  uint8_t* arena;
  uint8_t* persistent; /* what the arena begins with */
  uint8_t* stored;     /* what the stored tensors begin with, by slot */
  uint8_t* result;     /* the persistent part of the arena, then what is stored */
  uint8_t* remembered;
} session;

void session_fail(const char* claim, const char* file, int line) {
  fprintf(stderr, "%s:%d: `%s` does not hold; edge_error says: %s\n", file, line, claim, edge_error());
  exit(1);
}

static void* allocate(size_t nbytes) {
  void* memory = NULL; /* to the byte, so that a sanitizer sees what is touched behind it */
  CLAIM(posix_memalign(&memory, PAGE_BYTES, nbytes) == 0);
  return memory;
}

static uint8_t* contents(const char* path, size_t nbytes) {
  uint8_t* const read = allocate(nbytes + 1);
  FILE* const file = fopen(path, "rb");
  CLAIM(file != NULL);
  CLAIM(fread(read, 1, nbytes + 1, file) == nbytes);
  fclose(file);
  return read;
}

static size_t result_bytes(void) { return EDGE_PERSISTENT_BYTES + session.stored_bytes; }

void session_begin(int32_t threads) {
  session.threads = threads;
  for (uint32_t slot = 0; slot < stored_tensors; slot++) session.stored_bytes += edge_page_slots[slot].nbytes;
  session.arena = allocate(EDGE_ARENA_BYTES);
  session.persistent = contents("persistent.bin", EDGE_PERSISTENT_BYTES);
  session.stored = contents("stored.bin", session.stored_bytes);
  session.result = allocate(result_bytes());
  session.remembered = allocate(result_bytes());
}

void session_end(void) {
  free(session.arena);
  free(session.persistent);
  free(session.stored);
  free(session.result);
  free(session.remembered);
}

uint8_t* session_arena(void) { return session.arena; }

int32_t session_open(void) { return edge_open(session.arena, EDGE_ARENA_BYTES, session.threads, "pages"); }

static int32_t move_stored_tensor(bool write, uint32_t slot, uint8_t* memory) {
#ifdef EDGE_BARE_METAL /* the storage is the application's own */
  const size_t nbytes = edge_page_slots[slot].nbytes;
  return write ? edge_page_out(slot, memory, nbytes) : edge_page_in(slot, memory, nbytes);
#else
  return write ? edge_stored_write(slot, memory) : edge_stored_read(slot, memory);
#endif
}

static int32_t move_stored(bool write, uint8_t* memory) {
  int32_t status = EDGE_OK;
  for (uint32_t slot = 0; slot < stored_tensors && status == EDGE_OK; slot++) {
    status = move_stored_tensor(write, slot, memory);
    memory += edge_page_slots[slot].nbytes;
  }
  return status;
}

int32_t session_fill(void) {
  memset(session.arena, UNUSED, EDGE_ARENA_BYTES); /* nothing of an earlier run may help this one */
  memcpy(session.arena, session.persistent, EDGE_PERSISTENT_BYTES);
  memset(session.result, 0, result_bytes());
  return move_stored(true, session.stored);
}

int32_t session_train(void) {
  int32_t status = session_fill();
  for (int step = 0; step < STEPS && status == EDGE_OK; step++) status = edge_step();
  if (status == EDGE_OK) status = edge_evaluate();
  if (status != EDGE_OK) return status;
  memcpy(session.result, session.arena, EDGE_PERSISTENT_BYTES);
  return move_stored(false, session.result + EDGE_PERSISTENT_BYTES);
}

void session_remember(void) { memcpy(session.remembered, session.result, result_bytes()); }

bool session_matches(void) { return memcmp(session.remembered, session.result, result_bytes()) == 0; }

void session_write(const char* path) {
  FILE* const file = fopen(path, "wb");
  CLAIM(file != NULL);
  CLAIM(fwrite(session.remembered, 1, result_bytes(), file) == result_bytes());
  CLAIM(fclose(file) == 0);
}
