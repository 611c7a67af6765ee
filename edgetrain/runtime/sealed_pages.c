/* Pages that nobody can read once the process has ended: encrypted with a key that exists in its memory alone.
 *
 * A slot is encrypted in blocks. What each block was encrypted with stays in memory, so that a page file that somebody
 * changed, or gave back as it was earlier, is noticed. The nonce counts blocks written with the key, and the key is a
 * new one each time the program is opened: no nonce is used twice with one key.
 *
 * Blocks are encrypted into a buffer, for kernels may read the tensor meanwhile, and decrypted where they were read to.
 */
#if defined(EDGE_ENCRYPTED_PAGES) && !defined(EDGE_BARE_METAL)
#define _GNU_SOURCE

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

enum { KEY_BYTES = 32, NONCE_BYTES = 12, PLACE_BYTES = 16, BUFFER_ALIGNMENT = 4096 };

/* page_cipher.zig */
void edge_page_encrypt(uint8_t* to, uint8_t* tag, const uint8_t* from, size_t nbytes, const uint8_t* place,
                       const uint8_t* nonce, const uint8_t* key);
int32_t edge_page_decrypt(uint8_t* memory, size_t nbytes, const uint8_t* tag, const uint8_t* place,
                          const uint8_t* nonce, const uint8_t* key);

static _Alignas(BUFFER_ALIGNMENT) uint8_t buffer[EDGE_PAGE_BLOCK_BYTES];
static uint8_t key[KEY_BYTES];
static uint64_t written_blocks = 0; /* with this key; counts on when the program is opened again, which does no harm */

int32_t edge_page_key_make(void) {
  (void)mlock(key, sizeof key); /* not into swap, where that is allowed */
  size_t done = 0;
  while (done < sizeof key) {
    const long got = syscall(SYS_getrandom, key + done, sizeof key - done, 0);
    if (got < 0 && errno != EINTR) {
      edge_describe("the system gave no random key for the page file", errno);
      return EDGE_ERROR_PAGE_FILE;
    }
    if (got > 0) done += (size_t)got;
  }
  return EDGE_OK;
}

void edge_page_key_forget(void) {
  volatile uint8_t* byte = key; /* a plain memset of what nobody reads again would be left out */
  for (size_t index = 0; index < sizeof key; index++) byte[index] = 0;
  (void)munlock(key, sizeof key);
}

static void describe_place(uint32_t slot, uint64_t offset, uint64_t nbytes, uint8_t* place) {
  const uint32_t block = (uint32_t)(offset / EDGE_PAGE_BLOCK_BYTES);
  memcpy(place, &slot, sizeof slot);
  memcpy(place + 4, &block, sizeof block);
  memcpy(place + 8, &nbytes, sizeof nbytes);
}

static void count_nonce(uint64_t written, uint8_t* nonce) {
  memset(nonce, 0, NONCE_BYTES);
  memcpy(nonce, &written, sizeof written);
}

static edge_page_seal* seal_of(uint32_t slot, uint64_t offset) {
  return &edge_page_seals[edge_page_first_seals[slot] + offset / EDGE_PAGE_BLOCK_BYTES];
}

static size_t block_bytes(uint64_t left) {
  return left < EDGE_PAGE_BLOCK_BYTES ? (size_t)left : (size_t)EDGE_PAGE_BLOCK_BYTES;
}

int32_t edge_sealed_page_write(uint32_t slot, const void* from) {
  const edge_page_slot* where = &edge_page_slots[slot];
  uint8_t place[PLACE_BYTES], nonce[NONCE_BYTES];
  for (uint64_t offset = 0; offset < where->nbytes; offset += EDGE_PAGE_BLOCK_BYTES) {
    const size_t nbytes = block_bytes(where->nbytes - offset);
    edge_page_seal* seal = seal_of(slot, offset);
    seal->written = ++written_blocks;
    count_nonce(seal->written, nonce);
    describe_place(slot, offset, where->nbytes, place);
    edge_page_encrypt(buffer, seal->tag, (const uint8_t*)from + offset, nbytes, place, nonce, key);
    const int32_t status = edge_page_file_write(where->file_offset + offset, buffer, nbytes);
    if (status != EDGE_OK) return status;
  }
  return EDGE_OK;
}

int32_t edge_sealed_page_read(uint32_t slot, void* to) {
  const edge_page_slot* where = &edge_page_slots[slot];
  const int32_t status = edge_page_file_read(where->file_offset, to, where->nbytes);
  if (status != EDGE_OK) return status;
  uint8_t place[PLACE_BYTES], nonce[NONCE_BYTES];
  for (uint64_t offset = 0; offset < where->nbytes; offset += EDGE_PAGE_BLOCK_BYTES) {
    const edge_page_seal* seal = seal_of(slot, offset);
    const size_t nbytes = block_bytes(where->nbytes - offset);
    count_nonce(seal->written, nonce);
    describe_place(slot, offset, where->nbytes, place);
    if (edge_page_decrypt((uint8_t*)to + offset, nbytes, seal->tag, place, nonce, key) != 0) {
      edge_describe("the page file does not hold what was written to it: the disk is broken, or somebody changed it", 0);
      return EDGE_ERROR_PAGE_DAMAGED;
    }
  }
  return EDGE_OK;
}

#else
typedef int edge_no_sealed_pages; /* ISO C wants a declaration in every file */
#endif
