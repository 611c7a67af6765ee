/* Kernels on a Linux device: inputs from standard input, outputs to standard output. */
#include <stdio.h>

#include "kernel_stream.h"

int take(void* to, size_t nbytes) { return fread(to, 1, nbytes, stdin) != nbytes; }

int give(const void* from, size_t nbytes) { return fwrite(from, 1, nbytes, stdout) != nbytes; }

int main(void) {
  const int failed = run_kernels();
  if (failed != 0) fprintf(stderr, "kernel %d failed\n", failed - 1);
  return failed != 0;
}
