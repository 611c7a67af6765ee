/* A stand-in for libOpenCL.so.1 whose call number `fake_fail_at` fails. It computes nothing: it counts calls, and the
 * objects that were made and not released. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int32_t fake_calls = 0, fake_fail_at = 0, fake_live = 0, fake_status = -36, fake_alignment_bits = 1024;
uint64_t fake_largest = 1 << 30;

static int fails(void) { return ++fake_calls == fake_fail_at; }
static int32_t done(void) { return fails() ? fake_status : 0; }

static void* made(int32_t* status) {
  *status = done();
  if (*status != 0) return NULL;
  fake_live++;
  return malloc(1);
}

static int32_t released(void* object) {
  fake_live--;
  free(object);
  return 0;
}

int32_t clGetPlatformIDs(uint32_t most, void** platforms, uint32_t* count) {
  (void)most;
  platforms[0] = platforms;
  *count = 1;
  return done();
}

int32_t clGetDeviceIDs(void* platform, uint64_t type, uint32_t most, void** devices, uint32_t* count) {
  (void)platform, (void)most;
  devices[0] = devices;
  *count = type == 4 ? 0 : 1; /* no GPU, as with PoCL */
  return done();
}

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t size, void* value, size_t* needed) {
  (void)device, (void)needed;
  if (what == 0x1019) memcpy(value, &fake_alignment_bits, size);
  if (what == 0x1010) memcpy(value, &fake_largest, size);
  return done();
}

void* clCreateContext(void* p, uint32_t n, void* d, void* f, void* u, int32_t* status) {
  (void)p, (void)n, (void)d, (void)f, (void)u;
  return made(status);
}

void* clCreateCommandQueue(void* context, void* device, uint64_t properties, int32_t* status) {
  (void)context, (void)device, (void)properties;
  return made(status);
}

void* clCreateBuffer(void* context, uint64_t flags, size_t size, void* host, int32_t* status) {
  (void)context, (void)flags, (void)size, (void)host;
  return made(status);
}

void* clCreateSubBuffer(void* buffer, uint64_t flags, uint32_t type, void* region, int32_t* status) {
  (void)buffer, (void)flags, (void)type, (void)region;
  return made(status);
}

void* clCreateProgramWithSource(void* c, uint32_t n, void* text, void* length, int32_t* status) {
  (void)c, (void)n, (void)text, (void)length;
  return made(status);
}

void* clCreateKernel(void* program, const char* name, int32_t* status) {
  (void)program, (void)name;
  return made(status);
}

int32_t clBuildProgram(void) { return done(); }
int32_t clGetProgramBuildInfo(void) { return -30; } /* as for a log that does not fit */
int32_t clSetKernelArg(void) { return done(); }
int32_t clEnqueueNDRangeKernel(void) { return done(); }
int32_t clEnqueueReadBuffer(void) { return done(); }
int32_t clEnqueueWriteBuffer(void) { return done(); }
int32_t clFinish(void* queue) {
  (void)queue;
  return 0;
}
int32_t clReleaseMemObject(void* object) { return released(object); }
int32_t clReleaseKernel(void* object) { return released(object); }
int32_t clReleaseProgram(void* object) { return released(object); }
int32_t clReleaseCommandQueue(void* object) { return released(object); }
int32_t clReleaseContext(void* object) { return released(object); }
