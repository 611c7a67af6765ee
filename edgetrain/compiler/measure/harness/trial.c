/* Runs two kernels on the same random numbers, compares what they write, and times them in turns.
 *
 * Prints a line when it begins and one with what it found. A kernel that crashes or hangs ends the process: whoever
 * started it sees a first line without a second.
 */
#define _POSIX_C_SOURCE 200809L

#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { ALIGNMENT = 64 /* of every tensor in a program's arena */, NOBODY_WROTE = 77 };
static const double INFINITE_ERROR = 1e300;

/* What the threads call of the rest of the runtime. */
void edge_describe(const char* what, int system_error) { (void)what, (void)system_error; }

static void say_failed(const char* why) {
  printf("edgetrain-trial failed %s\n", why);
  fflush(stdout);
  _exit(0); /* at once: a thread may still be in a kernel */
}

static uint8_t* allocate(size_t nbytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, ALIGNMENT, nbytes > 0 ? nbytes : 1) != 0) say_failed("the device has too little memory");
  memset(memory, 0, nbytes);
  return memory;
}

static size_t bytes_of(const trial_tensor* tensor) { return tensor->elements * tensor->element_bytes; }

/* splitmix64: the same numbers on every device. */
static uint64_t next_random(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Half floats by hand: not every compiler has the type. Rounds towards zero; what is tiny becomes zero. */
static uint16_t half_of(double value) {
  int exponent;
  const double mantissa = frexp(fabs(value), &exponent);
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  if (mantissa == 0 || exponent < -13) return sign;
  return (uint16_t)(sign | ((exponent + 14) << 10) | (int)((2 * mantissa - 1) * 1024));
}

static double from_half(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                      : exponent == 0 ? ldexp(fraction, -24)
                                      : ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -size : size;
}

static double element(const trial_tensor* tensor, const uint8_t* memory, size_t index) {
  switch (tensor->kind) {
    case TRIAL_FLOAT64: return ((const double*)memory)[index];
    case TRIAL_FLOAT32: return (double)((const float*)memory)[index];
    default: return from_half(((const uint16_t*)memory)[index]);
  }
}

/* Around zero, or between 1/4 and 5/4 where roots and logarithms ask for it; whole numbers are 0 or 1: they are indices
 * and labels, and every tensor has a second element. */
static void draw(const trial_tensor* tensor, uint8_t* memory, uint64_t seed, int is_positive) {
  uint64_t state = seed;
  for (size_t index = 0; index < tensor->elements; index++) {
    const uint64_t bits = next_random(&state);
    const double part = (double)(bits >> 40) / (double)(1 << 24);
    const double value = is_positive ? part + 0.25 : 2 * part - 1;
    switch (tensor->kind) {
      case TRIAL_FLOAT64: ((double*)memory)[index] = value; break;
      case TRIAL_FLOAT32: ((float*)memory)[index] = (float)value; break;
      case TRIAL_FLOAT16: ((uint16_t*)memory)[index] = half_of(value); break;
      case TRIAL_WHOLE: memory[index * tensor->element_bytes] = (uint8_t)(bits >> 63); break; /* little end first */
    }
  }
}

/* One kernel with its arguments: inputs that both kernels share, results and scratch of its own. */
typedef struct {
  const trial_kernel* kernel;
  uint8_t** tensors;
  uint8_t** scratch;
} bound;

static bound bound_to(const trial_kernel* kernel, uint8_t* const* inputs) {
  bound made = {kernel, calloc((size_t)trial_tensor_count + 1, sizeof(uint8_t*)),
                calloc((size_t)kernel->scratch_count + 1, sizeof(uint8_t*))};
  if (made.tensors == NULL || made.scratch == NULL) say_failed("the device has too little memory");
  for (int number = 0; number < trial_tensor_count; number++) made.tensors[number] = inputs[number];
  for (int number = 0; number < trial_tensor_count; number++) {
    const trial_tensor* tensor = &trial_tensors[number];
    if (!tensor->is_written) continue;
    made.tensors[number] = allocate(bytes_of(tensor));
    if (tensor->source >= 0) made.tensors[tensor->source] = made.tensors[number];
  }
  for (int number = 0; number < kernel->scratch_count; number++)
    made.scratch[number] = allocate(kernel->scratch_bytes[number]);
  return made;
}

/* Results that nobody has written, which must show, or what is updated in place. */
static void lay_out(bound* made, uint8_t* const* inputs) {
  for (int number = 0; number < trial_tensor_count; number++) {
    const trial_tensor* tensor = &trial_tensors[number];
    if (!tensor->is_written) continue;
    if (tensor->source >= 0)
      memcpy(made->tensors[number], inputs[tensor->source], bytes_of(tensor));
    else
      memset(made->tensors[number], tensor->kind == TRIAL_WHOLE ? NOBODY_WROTE : 0xFF, bytes_of(tensor));
  }
}

static void run(bound* made) {
  if (made->kernel->call(made->tensors, made->scratch) != 0) say_failed("the kernel reported an error");
}

static int is_finite(const bound* made) {
  for (int number = 0; number < trial_tensor_count; number++) {
    const trial_tensor* tensor = &trial_tensors[number];
    if (!tensor->is_written || tensor->kind == TRIAL_WHOLE) continue;
    for (size_t index = 0; index < tensor->elements; index++)
      if (!isfinite(element(tensor, made->tensors[number], index))) return 0;
  }
  return 1;
}

/* The largest difference as a share of the largest element; infinite where one is a number and one is not. */
static double difference(const trial_tensor* tensor, const uint8_t* one, const uint8_t* other) {
  if (tensor->kind == TRIAL_WHOLE) return memcmp(one, other, bytes_of(tensor)) == 0 ? 0 : INFINITE_ERROR;
  double apart = 0, largest = 1e-30;
  for (size_t index = 0; index < tensor->elements; index++) {
    const double a = element(tensor, one, index), b = element(tensor, other, index);
    if (!isfinite(a) != !isfinite(b)) return INFINITE_ERROR;
    if (!isfinite(b)) continue;
    if (fabs(a - b) > apart) apart = fabs(a - b);
    if (fabs(b) > largest) largest = fabs(b);
  }
  return apart / largest;
}

static double largest_error(const bound* one, const bound* other) {
  double worst = 0;
  for (int number = 0; number < trial_tensor_count; number++) {
    if (!trial_tensors[number].is_written) continue;
    const double found = difference(&trial_tensors[number], one->tensors[number], other->tensors[number]);
    if (found > worst) worst = found;
  }
  return worst;
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double sample(bound* made, int repeats) {
  const double began = now_s();
  for (int repeat = 0; repeat < repeats; repeat++) run(made);
  return (now_s() - began) / repeats;
}

static int repeats_of(bound* made) {
  run(made);
  const double took = sample(made, 1), repeats = trial.least_sample_s / (took > 1e-7 ? took : 1e-7);
  return repeats < 1 ? 1 : repeats > 1000 ? 1000 : (int)(repeats + 0.5);
}

/* The quickest samples: what else the device does can only add to them. Returns how many there were. */
static int time_both(bound* candidate, bound* reference, double* own, double* other) {
  const int in_turns = trial.timing == TRIAL_IN_TURNS;
  const int repeats = repeats_of(in_turns ? reference : candidate);
  const double began = now_s();
  int samples = 0;
  while (samples < trial.least_samples || (samples < trial.most_samples && now_s() - began < trial.budget_s)) {
    const double one = sample(candidate, repeats), two = in_turns ? sample(reference, repeats) : 0;
    if (samples == 0 || one < *own) *own = one;
    if (samples == 0 || two < *other) *other = two;
    samples++;
    if (in_turns && samples >= trial.least_samples && *own > trial.hopeless * *other) break;
  }
  return samples;
}

int main(void) {
  printf("edgetrain-trial began\n");
  fflush(stdout);
  alarm(trial.limit_s);
  if (edge_threads_open(trial.threads) != 0) say_failed("the device does not start that many threads");
  uint8_t** inputs = calloc((size_t)trial_tensor_count + 1, sizeof(uint8_t*));
  if (inputs == NULL) say_failed("the device has too little memory");
  for (int number = 0; number < trial_tensor_count; number++)
    if (!trial_tensors[number].is_written) inputs[number] = allocate(bytes_of(&trial_tensors[number]));
  bound reference = bound_to(&trial_reference, inputs), candidate = bound_to(&trial_candidate, inputs);
  for (int is_positive = 0; is_positive < 2; is_positive++) {
    for (int number = 0; number < trial_tensor_count; number++)
      if (inputs[number] != NULL) draw(&trial_tensors[number], inputs[number], (uint64_t)number + 1, is_positive);
    lay_out(&reference, inputs);
    run(&reference);
    if (is_finite(&reference)) break;
  }
  lay_out(&candidate, inputs);
  run(&candidate);
  const double error = largest_error(&candidate, &reference);
  double own = 0, other = 0;
  int samples = 0;
  if (trial.timing != TRIAL_UNTIMED && error < INFINITE_ERROR) {
    lay_out(&reference, inputs);
    lay_out(&candidate, inputs);
    samples = time_both(&candidate, &reference, &own, &other);
  }
  printf("edgetrain-trial result %.9e %.9e %.9e %d\n", error, own, other, samples);
  fflush(stdout);
  _exit(0);
}
