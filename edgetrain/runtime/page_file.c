/* The page file: an unnamed file that holds the tensors that are paged out.
 *
 * It is read and written past the system's page cache where the filesystem takes O_DIRECT: cached copies of what was
 * just paged out would use the very memory that paging frees. O_DIRECT wants aligned memory, offsets and sizes. Slots
 * are aligned in the file; tensors in the arena may not be, and then go through one static buffer.
 */
#ifndef EDGE_BARE_METAL
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#ifndef O_DIRECT
#define O_DIRECT 0
#endif

enum {
  DIRECT_ALIGNMENT = 4096,     /* a logical block of any disk met so far; the driver aligns slots to it */
  BUFFER_BYTES = 128 * 1024,   /* one request of this size keeps an SD card or eMMC at its sequential speed */
  LARGEST_REQUEST = 1 << 30    /* Linux moves at most 2 GB a call */
};

static _Alignas(DIRECT_ALIGNMENT) uint8_t buffer[BUFFER_BYTES];

static int file = -1;
static bool direct = false;

static int32_t fail(const char* what, int system_error, int32_t otherwise) {
  edge_describe(what, system_error);
  /* EFBIG is the file size limit of the process or the filesystem: to the user, the same full disk. */
  return system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG ? EDGE_ERROR_NO_SPACE : otherwise;
}

/* A file with a name for as long as it takes to unlink it, where O_TMPFILE is not known. */
static int open_and_unlink(const char* directory) {
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/edgetrain-pages-XXXXXX", directory);
  if (length < 0 || (size_t)length >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int descriptor = mkostemp(path, O_CLOEXEC);
  if (descriptor < 0 || unlink(path) == 0) return descriptor;
  const int system_error = errno; /* a file that keeps its name would outlive the process */
  close(descriptor);
  errno = system_error;
  return -1;
}

static int try_open_unnamed(const char* directory) {
#ifdef O_TMPFILE
  const int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  /* Filesystems without O_TMPFILE say EOPNOTSUPP, kernels before 3.11 EISDIR. */
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
#endif
  return open_and_unlink(directory);
}

/* The application's signals arrive in this thread: a call that they interrupt is made again. */
static int open_unnamed(const char* directory) {
  int descriptor;
  do descriptor = try_open_unnamed(directory);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

static bool set_direct(bool wanted) {
  const int flags = fcntl(file, F_GETFL);
  if (flags < 0) return false;
  return fcntl(file, F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Takes the disk space now, so that a full disk is found before the training and not in the middle of it. */
static int try_reserve(uint64_t nbytes) {
#ifdef __linux__
  if (fallocate(file, 0, 0, (off_t)nbytes) == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return -1;
#endif
  return ftruncate(file, (off_t)nbytes);
}

static int reserve(uint64_t nbytes) {
  int status;
  do status = try_reserve(nbytes);
  while (status != 0 && errno == EINTR);
  return status;
}

int32_t edge_page_file_open(const char* page_directory, uint64_t page_file_bytes) {
  if (page_directory == NULL) {
    edge_describe("the program pages, and page_directory is NULL", 0);
    return EDGE_ERROR_PAGE_FILE;
  }
  file = open_unnamed(page_directory);
  if (file < 0) return fail("the page file could not be made", errno, EDGE_ERROR_PAGE_FILE);
  if (reserve(page_file_bytes) != 0) {
    const int32_t status = fail("the page file could not be given its size", errno, EDGE_ERROR_PAGE_FILE);
    edge_page_file_close();
    return status;
  }
  direct = O_DIRECT != 0 && set_direct(true);
  return EDGE_OK;
}

void edge_page_file_close(void) {
  if (file >= 0) close(file);
  file = -1;
}

/* All of [memory, memory + nbytes), to or from `offset`. A partial transfer goes on where it stopped. */
static int32_t move(bool write, uint64_t offset, uint8_t* memory, size_t nbytes) {
  while (nbytes > 0) {
    const ssize_t moved =
        write ? pwrite(file, memory, nbytes, (off_t)offset) : pread(file, memory, nbytes, (off_t)offset);
    if (moved > 0) {
      memory += moved;
      offset += (uint64_t)moved;
      nbytes -= (size_t)moved;
    } else if (moved == 0) {
      edge_describe("the page file ended before the tensor did", 0);
      return EDGE_ERROR_PAGE_IO;
    } else if (errno == EINVAL && direct && set_direct(false)) {
      direct = false; /* accepted at open, refused at use: a larger block size, or the rest of a partial transfer */
    } else if (errno != EINTR) {
      return fail(write ? "writing the page file failed" : "reading the page file failed", errno, EDGE_ERROR_PAGE_IO);
    }
  }
  return EDGE_OK;
}

/* One piece that is not aligned, through the buffer. The slot is padded, so the rounded size stays inside it. */
static int32_t move_through_buffer(bool write, uint64_t offset, uint8_t* memory, size_t nbytes) {
  const size_t rounded = (nbytes + DIRECT_ALIGNMENT - 1) / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
  if (write) {
    memcpy(buffer, memory, nbytes);
    memset(buffer + nbytes, 0, rounded - nbytes);
  }
  const int32_t status = move(write, offset, buffer, rounded);
  if (status == EDGE_OK && !write) memcpy(memory, buffer, nbytes);
  return status;
}

static int32_t transfer(bool write, uint64_t offset, uint8_t* memory, uint64_t nbytes) {
  while (nbytes > 0) {
    const bool aligned = (uintptr_t)memory % DIRECT_ALIGNMENT == 0 && nbytes >= DIRECT_ALIGNMENT;
    const bool buffered = direct && !aligned;
    const size_t largest = buffered ? BUFFER_BYTES : LARGEST_REQUEST;
    size_t piece = nbytes < largest ? (size_t)nbytes : largest;
    if (direct && aligned) piece -= piece % DIRECT_ALIGNMENT;
    const int32_t status =
        buffered ? move_through_buffer(write, offset, memory, piece) : move(write, offset, memory, piece);
    if (status != EDGE_OK) return status;
    memory += piece;
    offset += piece;
    nbytes -= piece;
  }
  return EDGE_OK;
}

int32_t edge_page_file_write(uint64_t file_offset, const void* from, uint64_t nbytes) {
  return transfer(true, file_offset, (uint8_t*)(uintptr_t)from, nbytes);
}

int32_t edge_page_file_read(uint64_t file_offset, void* to, uint64_t nbytes) {
  return transfer(false, file_offset, to, nbytes);
}

#else
typedef int edge_no_page_file; /* ISO C wants a declaration in every file */
#endif
