/* Kernels by hand, with the calling convention of compiled ones: reads, writes, scratch; 0 for success. */
#include <stddef.h>
#include <stdint.h>

void* memcpy(void* to, const void* from, size_t nbytes); /* bare metal has no string.h */

enum { COUNT = 1500 };

typedef struct {
  void* sync_handle;
  int32_t num_task;
} environment;
typedef int (*lambda)(int task, environment* environment, void* closure);

/* As in objects from LLVM: weak, null, and expected to be filled in by whoever links the program. */
int (*__TVMBackendParallelLaunch)(lambda, void*, int) __attribute__((weak)) = 0;

typedef struct {
  const float* left;
  const float* right;
  float* product;
} multiplication;

static int multiply_share(int task, environment* shared, void* closure) {
  const multiplication* job = closure;
  const int per_task = (COUNT + shared->num_task - 1) / shared->num_task;
  const int end = (task + 1) * per_task < COUNT ? (task + 1) * per_task : COUNT;
  for (int i = task * per_task; i < end; i++) job->product[i] = job->left[i] * job->right[i];
  return 0;
}

int32_t tiny_multiply(void* left, void* right, void* product);
int32_t tiny_multiply(void* left, void* right, void* product) {
  multiplication job = {left, right, product};
  int (*volatile *launch)(lambda, void*, int) = (int (*volatile*)(lambda, void*, int)) & __TVMBackendParallelLaunch;
  return (*launch)(multiply_share, &job, 0);
}

/* Goes through its scratch, so that scratch in the wrong place shows. */
int32_t tiny_square(void* in, void* out, void* scratch);
int32_t tiny_square(void* in, void* out, void* scratch) {
  memcpy(scratch, in, COUNT * sizeof(float));
  for (int i = 0; i < COUNT; i++) ((float*)out)[i] = ((float*)scratch)[i] * ((float*)scratch)[i];
  return 0;
}

int32_t tiny_sum(void* in, void* out);
int32_t tiny_sum(void* in, void* out) {
  float sum = 0;
  for (int i = 0; i < COUNT; i++) sum += ((float*)in)[i];
  *(float*)out = sum;
  return 0;
}

/* Fails when asked to: a first input of -1. */
int32_t tiny_gradient(void* hidden, void* input, void* out);
int32_t tiny_gradient(void* hidden, void* input, void* out) {
  if (((float*)input)[0] == -1.0f) return 7;
  for (int i = 0; i < COUNT; i++) ((float*)out)[i] = ((float*)hidden)[i] * ((float*)input)[i];
  return 0;
}

int32_t tiny_update(void* gradient, void* rate, void* weight, void* new_weight);
int32_t tiny_update(void* gradient, void* rate, void* weight, void* new_weight) {
  for (int i = 0; i < COUNT; i++) {
    ((float*)new_weight)[i] = ((float*)weight)[i] - *(float*)rate * ((float*)gradient)[i];
  }
  return 0;
}
