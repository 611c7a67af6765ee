/* Kernels one after the other: each takes its inputs from a stream and gives its outputs to another. */
#ifndef KERNEL_STREAM_H
#define KERNEL_STREAM_H

#include <stddef.h>

/* Supplied by the device: 0 when all bytes were read or written. */
int take(void* to, size_t nbytes);
int give(const void* from, size_t nbytes);

/* Generated: calls every kernel. 0, or the number of the one that failed, from 1 on. */
int run_kernels(void);

#endif
