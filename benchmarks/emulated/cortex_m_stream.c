/* Kernels on a Cortex-M: inputs from inputs.bin, outputs to outputs.bin, through semihosting. Prints what failed. */
#include "cortex_m.h"
#include "kernel_stream.h"

static int32_t inputs, outputs;

enum { READ_BINARY = 1, WRITE_BINARY = 5 };

static int32_t open_file(const char* name, uint32_t length, uint32_t mode) {
  const uint32_t block[3] = {(uint32_t)name, mode, length};
  return semihost(SYS_OPEN, block);
}

/* Both answer with the number of bytes that are left over. */
int take(void* to, size_t nbytes) {
  const uint32_t block[3] = {(uint32_t)inputs, (uint32_t)to, nbytes};
  return semihost(SYS_READ, block);
}

int give(const void* from, size_t nbytes) {
  const uint32_t block[3] = {(uint32_t)outputs, (uint32_t)from, nbytes};
  return semihost(SYS_WRITE, block);
}

uint32_t firmware(void) {
  inputs = open_file("inputs.bin", 10, READ_BINARY);
  outputs = open_file("outputs.bin", 11, WRITE_BINARY);
  if (inputs < 0 || outputs < 0) return 2;
  const int failed = run_kernels();
  if (failed != 0) print_bits((uint32_t)failed - 1);
  return failed != 0;
}
