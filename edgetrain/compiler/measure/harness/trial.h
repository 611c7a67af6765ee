/* A trial of one kernel on a device: what the generated file says, and what trial.c does with it. */
#ifndef EDGETRAIN_TRIAL_H
#define EDGETRAIN_TRIAL_H

#include <stddef.h>
#include <stdint.h>

typedef enum { TRIAL_FLOAT64, TRIAL_FLOAT32, TRIAL_FLOAT16, TRIAL_WHOLE } trial_kind;

/* A parameter of the kernel. One that is written in place begins with what `source` holds, and takes its place. */
typedef struct {
  size_t elements;
  size_t element_bytes;
  trial_kind kind;
  int is_written;
  int source; /* a parameter's number, or -1 */
} trial_tensor;

typedef struct {
  int32_t (*call)(uint8_t* const* tensors, uint8_t* const* scratch);
  const size_t* scratch_bytes;
  int scratch_count;
} trial_kernel;

enum { TRIAL_UNTIMED, TRIAL_ALONE, TRIAL_IN_TURNS };

typedef struct {
  int threads;
  unsigned limit_s; /* after which the process ends itself: nobody may be there any more to end it */
  int timing;
  double budget_s;
  double least_sample_s; /* shorter calls are repeated within a sample */
  int least_samples, most_samples;
  double hopeless; /* times the reference's seconds, after which the candidate is not timed further */
} trial_terms;

/* Defined by the generated file. Results of the candidate are compared with those of the reference. */
extern const trial_terms trial;
extern const trial_tensor trial_tensors[];
extern const int trial_tensor_count;
extern const trial_kernel trial_candidate, trial_reference;

#endif
