/* bare_metal: the runtime without an operating system, whose application's storage fails at every transfer in turn. */
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "session.h"

enum { LARGEST_SLOT = 1 << 14 };

static uint8_t storage[EDGE_PAGE_SLOTS][LARGEST_SLOT];
static long transfers, failing;

static int32_t transfer(void* to, const void* from, size_t nbytes) {
  CLAIM(nbytes <= LARGEST_SLOT);
  if (++transfers == failing) return EDGE_ERROR_PAGE_IO;
  memcpy(to, from, nbytes);
  return 0;
}

int32_t edge_page_out(uint32_t slot, const void* from, size_t nbytes) { return transfer(storage[slot], from, nbytes); }

int32_t edge_page_in(uint32_t slot, void* to, size_t nbytes) { return transfer(to, storage[slot], nbytes); }

static int32_t train_failing_at(long number) {
  transfers = 0;
  failing = number;
  return session_train();
}

int main(void) {
  session_begin(1);
  CLAIM(edge_step() == EDGE_ERROR_STATE);
  CLAIM(session_open() == EDGE_OK);
  CLAIM(train_failing_at(0) == EDGE_OK);
  session_remember();
  session_write("trained.bin");
  const long all = transfers;
  for (long number = 1; number <= all; number++) {
    CLAIM(train_failing_at(number) == EDGE_ERROR_PAGE_IO);
    CLAIM(train_failing_at(0) == EDGE_OK);
    CLAIM(session_matches());
  }
  edge_close();
  edge_close();
  printf("edge_page %ld\n", all);
  session_end();
  return 0;
}
