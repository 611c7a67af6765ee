/* Trains an edgetrain program on a Linux device: no Python, no TVM. Prints each loss as the bits of its float. */
#include <stdio.h>
#include <string.h>

#include "edgetrain_model.h"

static uint8_t arena[EDGE_ARENA_BYTES] __attribute__((aligned(EDGE_ARENA_ALIGNMENT)));

static int load(const char* path, uint32_t offset) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return 1;
  const size_t got = fread(arena + offset, 1, sizeof arena - offset, file);
  fclose(file);
  return got == 0;
}

int main(int count, char** words) {
  if (count != 5) return 2;
  if (load(words[1], 0) || load(words[2], EDGE_OFFSET_IMAGE) || load(words[3], EDGE_OFFSET_TRAIN_LABELS)) return 3;
  const float rate = 0.05f;
  memcpy(arena + EDGE_OFFSET_TRAIN_LEARNING_RATE, &rate, sizeof rate);
  if (edge_open(arena, sizeof arena, 2, NULL) != EDGE_OK) return 4;
  for (int step = 0; step < STEPS; step++) {
    if (edge_step() != EDGE_OK) return 5;
    uint32_t bits;
    memcpy(&bits, arena + EDGE_OFFSET_TRAIN_LOSS, sizeof bits);
    printf("%08x\n", (unsigned)bits);
  }
  edge_close();
  FILE* trained = fopen(words[4], "wb");
  if (trained == NULL || fwrite(arena, 1, EDGE_SAVED_BYTES, trained) != EDGE_SAVED_BYTES) return 6;
  return fclose(trained);
}
