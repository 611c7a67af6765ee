/* Moves tensors between the arena and storage while kernels run.
 *
 * Three builds: with an operating system and threads, one worker takes transfers from a queue in order; without
 * threads a transfer is done when it is started; on bare metal the application's callbacks do it.
 */
#ifndef EDGE_BARE_METAL
#define _POSIX_C_SOURCE 200809L
#endif

#include "internal.h"

#ifdef EDGE_BARE_METAL

static int32_t check(int32_t callback_status) {
  if (callback_status == 0) return EDGE_OK;
  edge_describe("edge_page_out or edge_page_in of the application failed", 0);
  return EDGE_ERROR_PAGE_IO;
}

int32_t edge_page_start_write(uint32_t slot, const void* from) {
  return check(edge_page_out(slot, from, (size_t)edge_page_slots[slot].nbytes));
}

int32_t edge_page_start_read(uint32_t slot, void* to) {
  return check(edge_page_in(slot, to, (size_t)edge_page_slots[slot].nbytes));
}

int32_t edge_page_wait(uint32_t slot) {
  (void)slot;
  return EDGE_OK;
}

int32_t edge_page_drain(void) { return EDGE_OK; }

void edge_page_throttle(uint64_t bytes_per_second) { (void)bytes_per_second; }

#else

#include <errno.h>
#include <stdbool.h>
#include <time.h>

static void sleep_until(struct timespec start, double seconds) {
  const double end_s = (double)start.tv_sec + 1e-9 * (double)start.tv_nsec + seconds;
  struct timespec end = {.tv_sec = (time_t)end_s, .tv_nsec = (long)((end_s - (double)(time_t)end_s) * 1e9)};
  for (;;) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec left = {.tv_sec = end.tv_sec - now.tv_sec, .tv_nsec = end.tv_nsec - now.tv_nsec};
    if (left.tv_nsec < 0) {
      left.tv_sec -= 1;
      left.tv_nsec += 1000000000L;
    }
    if (left.tv_sec < 0 || nanosleep(&left, NULL) == 0 || errno != EINTR) return;
  }
}

static int32_t transfer(uint32_t slot, bool write, void* memory, uint64_t bytes_per_second) {
  const edge_page_slot* place = &edge_page_slots[slot];
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
#ifdef EDGE_ENCRYPTED_PAGES
  const int32_t status = write ? edge_sealed_page_write(slot, memory) : edge_sealed_page_read(slot, memory);
#else
  const int32_t status = write ? edge_page_file_write(place->file_offset, memory, place->nbytes)
                               : edge_page_file_read(place->file_offset, memory, place->nbytes);
#endif
  if (bytes_per_second > 0) sleep_until(start, (double)place->nbytes / (double)bytes_per_second);
  return status;
}

static int32_t open_pages(const char* page_directory, uint64_t page_file_bytes) {
  const int32_t status = edge_page_file_open(page_directory, page_file_bytes);
#ifdef EDGE_ENCRYPTED_PAGES
  if (status == EDGE_OK && edge_page_key_make() != EDGE_OK) {
    edge_page_file_close();
    return EDGE_ERROR_PAGE_FILE;
  }
#endif
  return status;
}

static void close_pages(void) {
  edge_page_file_close();
#ifdef EDGE_ENCRYPTED_PAGES
  edge_page_key_forget();
#endif
}

#ifdef EDGE_NO_THREADS

static uint64_t throttle_bytes_per_second = 0;

int32_t edge_page_start_write(uint32_t slot, const void* from) {
  return transfer(slot, true, (void*)(uintptr_t)from, throttle_bytes_per_second);
}

int32_t edge_page_start_read(uint32_t slot, void* to) { return transfer(slot, false, to, throttle_bytes_per_second); }

int32_t edge_page_wait(uint32_t slot) {
  (void)slot;
  return EDGE_OK;
}

int32_t edge_page_drain(void) { return EDGE_OK; }

void edge_page_throttle(uint64_t bytes_per_second) { throttle_bytes_per_second = bytes_per_second; }

int32_t edge_pager_open(const char* page_directory, uint64_t page_file_bytes) {
  return open_pages(page_directory, page_file_bytes);
}

void edge_pager_close(void) { close_pages(); }

#else

#include <pthread.h>
#include <signal.h>

enum { QUEUE_LENGTH = 64 }; /* more than a plan keeps under way; a longer burst waits, it is not lost */

typedef struct {
  uint32_t slot;
  bool write;
  void* memory;
} request;

static struct {
  pthread_t worker;
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* something was started or finished, or stop was set */
  request queue[QUEUE_LENGTH];
  uint32_t started;  /* counts transfers; wraps, so compare by difference */
  uint32_t finished;
  int32_t status; /* of the first transfer that failed since the last drain */
  uint64_t throttle_bytes_per_second;
  bool stop;
} pager = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void* work(void* unused) {
  (void)unused;
  pthread_mutex_lock(&pager.mutex);
  for (;;) {
    while (pager.started == pager.finished && !pager.stop) pthread_cond_wait(&pager.changed, &pager.mutex);
    if (pager.started == pager.finished) break;
    const request next = pager.queue[pager.finished % QUEUE_LENGTH];
    const uint64_t throttle = pager.throttle_bytes_per_second;
    int32_t status = pager.status;
    pthread_mutex_unlock(&pager.mutex);
    /* After a failure the function is lost: what is left in the queue must not run on half-written data. */
    if (status == EDGE_OK) status = transfer(next.slot, next.write, next.memory, throttle);
    pthread_mutex_lock(&pager.mutex);
    pager.status = status;
    pager.finished++;
    pthread_cond_broadcast(&pager.changed);
  }
  pthread_mutex_unlock(&pager.mutex);
  return NULL;
}

static int32_t start(uint32_t slot, bool write, void* memory) {
  pthread_mutex_lock(&pager.mutex);
  while (pager.started - pager.finished == QUEUE_LENGTH) pthread_cond_wait(&pager.changed, &pager.mutex);
  pager.queue[pager.started % QUEUE_LENGTH] = (request){.slot = slot, .write = write, .memory = memory};
  pager.started++;
  const int32_t status = pager.status;
  pthread_cond_broadcast(&pager.changed);
  pthread_mutex_unlock(&pager.mutex);
  return status;
}

static bool under_way(uint32_t slot) {
  for (uint32_t ticket = pager.finished; ticket != pager.started; ticket++) {
    if (pager.queue[ticket % QUEUE_LENGTH].slot == slot) return true;
  }
  return false;
}

int32_t edge_page_start_write(uint32_t slot, const void* from) { return start(slot, true, (void*)(uintptr_t)from); }

int32_t edge_page_start_read(uint32_t slot, void* to) { return start(slot, false, to); }

int32_t edge_page_wait(uint32_t slot) {
  pthread_mutex_lock(&pager.mutex);
  while (under_way(slot)) pthread_cond_wait(&pager.changed, &pager.mutex);
  const int32_t status = pager.status;
  pthread_mutex_unlock(&pager.mutex);
  return status;
}

int32_t edge_page_drain(void) {
  pthread_mutex_lock(&pager.mutex);
  while (pager.started != pager.finished) pthread_cond_wait(&pager.changed, &pager.mutex);
  const int32_t status = pager.status;
  pager.status = EDGE_OK;
  pthread_mutex_unlock(&pager.mutex);
  return status;
}

void edge_page_throttle(uint64_t bytes_per_second) {
  pthread_mutex_lock(&pager.mutex);
  pager.throttle_bytes_per_second = bytes_per_second;
  pthread_mutex_unlock(&pager.mutex);
}

int32_t edge_pager_open(const char* page_directory, uint64_t page_file_bytes) {
  const int32_t status = open_pages(page_directory, page_file_bytes);
  if (status != EDGE_OK) return status;
  pager.stop = false;
  pager.status = EDGE_OK;
  sigset_t all, before; /* as in threads.c: signals belong to the application's threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int system_error = pthread_create(&pager.worker, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (system_error == 0) return EDGE_OK;
  close_pages();
  edge_describe("the pager's thread could not be started", system_error);
  return EDGE_ERROR_THREADS;
}

void edge_pager_close(void) {
  pthread_mutex_lock(&pager.mutex);
  pager.stop = true;
  pthread_cond_broadcast(&pager.changed);
  pthread_mutex_unlock(&pager.mutex);
  pthread_join(pager.worker, NULL);
  close_pages();
}

#endif

static int32_t finish(int32_t started) {
  const int32_t drained = edge_page_drain();
  return started != EDGE_OK ? started : drained;
}

/* Between calls no transfer is under way whose words could be overwritten. */
static int32_t check_stored(uint32_t slot, const void* memory) {
  if (edge_arena == NULL) return edge_fail(EDGE_ERROR_STATE);
  if (slot < edge_stored_tensors && memory != NULL) return EDGE_OK;
  edge_describe(memory == NULL ? "the memory of a stored tensor is NULL" : "no stored tensor has this slot", 0);
  return EDGE_ERROR_ARGUMENT;
}

int32_t edge_stored_read(uint32_t slot, void* to) {
  const int32_t status = check_stored(slot, to);
  if (status != EDGE_OK) return status;
  return finish(edge_page_start_read(slot, to));
}

int32_t edge_stored_write(uint32_t slot, const void* from) {
  const int32_t status = check_stored(slot, from);
  if (status != EDGE_OK) return status;
  return finish(edge_page_start_write(slot, from));
}

#endif
