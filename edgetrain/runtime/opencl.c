/* device.h on OpenCL 1.2 or later. The library is found when the program is opened, so that nothing of OpenCL is needed
 * to build; what is used of it is declared here, after the specification.
 *
 * The device's arena is one buffer, and each tensor a sub-buffer of it. A sub-buffer must begin at a multiple of
 * CL_DEVICE_MEM_BASE_ADDR_ALIGN. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device.h"

typedef struct platform* cl_platform;
typedef struct device* cl_device;
typedef struct context* cl_context;
typedef struct queue* cl_queue;
typedef struct buffer* cl_buffer;
typedef struct program* cl_program;
typedef struct function* cl_function;

enum {
  CL_SUCCESS = 0,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_BUILD_PROGRAM_FAILURE = -11,
  CL_INVALID_BUFFER_SIZE = -61,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* in bits */
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_MEM_READ_WRITE = 1,
  CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
  CL_TRUE = 1,
  MOST = 16 /* platforms that are looked at, and devices of a platform */
};
static const uint64_t CL_DEVICE_TYPE_GPU = 1 << 2, CL_DEVICE_TYPE_ALL = 0xFFFFFFFF;

/* name, what it returns, what it takes */
#define EACH_CALL(X)                                                                                                   \
  X(clGetPlatformIDs, int32_t, (uint32_t, cl_platform*, uint32_t*))                                                    \
  X(clGetDeviceIDs, int32_t, (cl_platform, uint64_t, uint32_t, cl_device*, uint32_t*))                                 \
  X(clGetDeviceInfo, int32_t, (cl_device, uint32_t, size_t, void*, size_t*))                                           \
  X(clCreateContext, cl_context, (const intptr_t*, uint32_t, const cl_device*, void (*)(void), void*, int32_t*))       \
  X(clCreateCommandQueue, cl_queue, (cl_context, cl_device, uint64_t, int32_t*))                                       \
  X(clCreateBuffer, cl_buffer, (cl_context, uint64_t, size_t, void*, int32_t*))                                        \
  X(clCreateSubBuffer, cl_buffer, (cl_buffer, uint64_t, uint32_t, const void*, int32_t*))                              \
  X(clCreateProgramWithSource, cl_program, (cl_context, uint32_t, const char**, const size_t*, int32_t*))              \
  X(clBuildProgram, int32_t, (cl_program, uint32_t, const cl_device*, const char*, void (*)(void), void*))             \
  X(clGetProgramBuildInfo, int32_t, (cl_program, cl_device, uint32_t, size_t, void*, size_t*))                         \
  X(clCreateKernel, cl_function, (cl_program, const char*, int32_t*))                                                  \
  X(clSetKernelArg, int32_t, (cl_function, uint32_t, size_t, const void*))                                             \
  X(clEnqueueNDRangeKernel, int32_t,                                                                                   \
    (cl_queue, cl_function, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, const void*, void*))      \
  X(clEnqueueReadBuffer, int32_t, (cl_queue, cl_buffer, uint32_t, size_t, size_t, void*, uint32_t, const void*, void*)) \
  X(clEnqueueWriteBuffer, int32_t,                                                                                     \
    (cl_queue, cl_buffer, uint32_t, size_t, size_t, const void*, uint32_t, const void*, void*))                        \
  X(clFinish, int32_t, (cl_queue))                                                                                     \
  X(clReleaseMemObject, int32_t, (cl_buffer))                                                                          \
  X(clReleaseKernel, int32_t, (cl_function))                                                                           \
  X(clReleaseProgram, int32_t, (cl_program))                                                                           \
  X(clReleaseCommandQueue, int32_t, (cl_queue))                                                                        \
  X(clReleaseContext, int32_t, (cl_context))

#define DECLARE(name, result, arguments) result(*name) arguments;
static struct {
  void* library;
  EACH_CALL(DECLARE)
} cl;

static struct {
  cl_device device;
  cl_context context;
  cl_queue queue;
  cl_buffer arena;
  cl_program program;
} at;

/* edge_describe keeps 255 characters; these are put together here first. */
static char words[256];

/* A failed call of OpenCL. What it was for tells where memory is the reason. */
static int32_t failed(const char* what, int32_t status) {
  const int is_memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
                        status == CL_OUT_OF_HOST_MEMORY || status == CL_INVALID_BUFFER_SIZE;
  snprintf(words, sizeof words, "%s: OpenCL error %d%s", what, (int)status, is_memory ? ", not enough memory" : "");
  edge_describe(words, 0);
  return is_memory ? EDGE_ERROR_DEVICE_MEMORY : EDGE_ERROR_DEVICE;
}

#define TRY(what, call)                                          \
  do {                                                           \
    const int32_t tried = (call);                                \
    if (tried != CL_SUCCESS) return failed((what), tried);       \
  } while (0)

static int32_t no_device(const char* what) {
  edge_describe(what, 0);
  return EDGE_ERROR_NO_DEVICE;
}

static int32_t find_library(void) {
  static const char* const names[] = {"libOpenCL.so.1", "libOpenCL.so"};
  for (size_t i = 0; cl.library == NULL && i < sizeof names / sizeof *names; i++) {
    cl.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* and never closed: drivers leave threads behind */
  }
  if (cl.library == NULL) return no_device("there is no OpenCL library");
  void* found;
#define FIND(name, result, arguments)                                                          \
  found = dlsym(cl.library, #name);                                                            \
  if (found == NULL) return no_device("the OpenCL library is older than 1.2: it has no " #name); \
  memcpy(&cl.name, &found, sizeof found);
  EACH_CALL(FIND)
  return EDGE_OK;
}

/* The first device of that type of any platform, or NULL. */
static cl_device first_device(uint64_t type) {
  cl_platform platforms[MOST];
  cl_device devices[MOST];
  uint32_t platform_count = 0, count = 0;
  if (cl.clGetPlatformIDs(MOST, platforms, &platform_count) != CL_SUCCESS) return NULL;
  for (uint32_t p = 0; p < platform_count && p < MOST; p++) {
    if (cl.clGetDeviceIDs(platforms[p], type, MOST, devices, &count) == CL_SUCCESS && count > 0) return devices[0];
  }
  return NULL;
}

static int32_t find_device(uint64_t arena_bytes) {
  at.device = first_device(CL_DEVICE_TYPE_GPU);
  if (at.device == NULL) at.device = first_device(CL_DEVICE_TYPE_ALL);
  if (at.device == NULL) return no_device("the OpenCL library knows no device");
  uint32_t alignment_bits = 0;
  uint64_t largest = 0;
  TRY("clGetDeviceInfo",
      cl.clGetDeviceInfo(at.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof alignment_bits, &alignment_bits, NULL));
  TRY("clGetDeviceInfo", cl.clGetDeviceInfo(at.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL));
  if (alignment_bits == 0 || edge_device.alignment * 8 % alignment_bits != 0) {
    snprintf(words, sizeof words, "the device wants tensors at multiples of %u bytes, the program has them at %u",
             (unsigned)(alignment_bits / 8), (unsigned)edge_device.alignment);
    edge_describe(words, 0);
    return EDGE_ERROR_DEVICE;
  }
  if (arena_bytes > largest) {
    snprintf(words, sizeof words, "the arena has %llu bytes, and the device gives at most %llu in one buffer",
             (unsigned long long)arena_bytes, (unsigned long long)largest);
    edge_describe(words, 0);
    return EDGE_ERROR_DEVICE_MEMORY;
  }
  return EDGE_OK;
}

static int32_t does_not_compile(void) {
  static char log[8192] = "the kernels do not compile: "; /* a log that is longer than the room for it is not given */
  const size_t length = strlen("the kernels do not compile: ");
  log[length] = '\0';
  (void)cl.clGetProgramBuildInfo(at.program, at.device, CL_PROGRAM_BUILD_LOG, sizeof log - length, log + length, NULL);
  edge_describe(log, 0);
  return EDGE_ERROR_DEVICE;
}

static int32_t build(void) {
  int32_t status = CL_SUCCESS;
  const char* source = edge_device_source;
  at.program = cl.clCreateProgramWithSource(at.context, 1, &source, NULL, &status);
  TRY("clCreateProgramWithSource", status);
  status = cl.clBuildProgram(at.program, 1, &at.device, "-cl-std=CL1.2", NULL, NULL);
  if (status == CL_BUILD_PROGRAM_FAILURE) return does_not_compile();
  TRY("clBuildProgram", status);
  for (uint32_t i = 0; i < edge_device.function_count; i++) {
    edge_device_functions[i] = cl.clCreateKernel(at.program, edge_device.functions[i], &status);
    TRY(edge_device.functions[i], status);
  }
  return EDGE_OK;
}

static int32_t allocate(uint64_t arena_bytes) {
  int32_t status = CL_SUCCESS;
  at.arena = cl.clCreateBuffer(at.context, CL_MEM_READ_WRITE, (size_t)arena_bytes, NULL, &status);
  TRY("clCreateBuffer", status);
  for (uint32_t i = 0; i < edge_device.span_count; i++) {
    const size_t region[2] = {(size_t)edge_device.spans[i].offset, (size_t)edge_device.spans[i].nbytes};
    edge_device_buffers[i] =
        cl.clCreateSubBuffer(at.arena, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, region, &status);
    TRY("clCreateSubBuffer", status);
  }
  return EDGE_OK;
}

static int32_t open_all(uint64_t arena_bytes) {
  int32_t status = find_library();
  if (status == EDGE_OK) status = find_device(arena_bytes);
  if (status != EDGE_OK) return status;
  at.context = cl.clCreateContext(NULL, 1, &at.device, NULL, NULL, &status);
  TRY("clCreateContext", status);
  at.queue = cl.clCreateCommandQueue(at.context, at.device, 0, &status); /* in order */
  TRY("clCreateCommandQueue", status);
  status = allocate(arena_bytes);
  return status == EDGE_OK ? build() : status;
}

int32_t edge_device_open(uint64_t arena_bytes) {
  const int32_t status = open_all(arena_bytes);
  if (status != EDGE_OK) edge_device_close();
  return status;
}

void edge_device_close(void) {
  if (at.queue != NULL) (void)cl.clFinish(at.queue);
  for (uint32_t i = 0; i < edge_device.function_count; i++) {
    if (edge_device_functions[i] != NULL) (void)cl.clReleaseKernel(edge_device_functions[i]);
    edge_device_functions[i] = NULL;
  }
  for (uint32_t i = 0; i < edge_device.span_count; i++) {
    if (edge_device_buffers[i] != NULL) (void)cl.clReleaseMemObject(edge_device_buffers[i]);
    edge_device_buffers[i] = NULL;
  }
  if (at.program != NULL) (void)cl.clReleaseProgram(at.program);
  if (at.arena != NULL) (void)cl.clReleaseMemObject(at.arena);
  if (at.queue != NULL) (void)cl.clReleaseCommandQueue(at.queue);
  if (at.context != NULL) (void)cl.clReleaseContext(at.context);
  memset(&at, 0, sizeof at);
}

/* Through the tensor's own sub-buffer: to use a buffer and a part of it at once is undefined. */
int32_t edge_device_write(uint32_t span, const void* from) {
  const size_t nbytes = (size_t)edge_device.spans[span].nbytes;
  TRY("clEnqueueWriteBuffer",
      cl.clEnqueueWriteBuffer(at.queue, edge_device_buffers[span], CL_TRUE, 0, nbytes, from, 0, NULL, NULL));
  return EDGE_OK;
}

int32_t edge_device_read(uint32_t span, void* to) {
  const size_t nbytes = (size_t)edge_device.spans[span].nbytes;
  TRY("clEnqueueReadBuffer",
      cl.clEnqueueReadBuffer(at.queue, edge_device_buffers[span], CL_TRUE, 0, nbytes, to, 0, NULL, NULL));
  return EDGE_OK;
}

int32_t edge_device_run(const edge_device_launch* launch) {
  const cl_function function = edge_device_functions[launch->function];
  const char* const name = edge_device.functions[launch->function];
  for (uint32_t i = 0; i < launch->count; i++) {
    TRY(name, cl.clSetKernelArg(function, i, sizeof(cl_buffer), &edge_device_buffers[launch->spans[i]]));
  }
  size_t all[3], group[3];
  for (int i = 0; i < 3; i++) {
    group[i] = launch->threads[i];
    all[i] = group[i] * launch->groups[i];
  }
  TRY(name, cl.clEnqueueNDRangeKernel(at.queue, function, 3, NULL, all, group, 0, NULL, NULL));
  return EDGE_OK;
}

int32_t edge_device_finish(void) {
  TRY("clFinish", cl.clFinish(at.queue));
  return EDGE_OK;
}
