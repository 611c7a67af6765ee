/* tiny_kernels.c for a GPU. Squaring takes two launches, with its scratch between them. */
#define ELEMENT                           \
  const int i = (int)get_global_id(0);    \
  if (i >= 1500) return

__kernel void multiply(__global const float* x, __global const float* w, __global float* h) {
  ELEMENT;
  h[i] = x[i] * w[i];
}

__kernel void copy(__global const float* h, __global float* scratch) {
  ELEMENT;
  scratch[i] = h[i];
}

__kernel void square(__global float* square, __global const float* h, __global const float* scratch) {
  ELEMENT;
  square[i] = h[i] * scratch[i];
}

__kernel void sum(__global const float* square, __global float* loss) {
  float total = 0.0f;
  for (int i = 0; i < 1500; i++) total += square[i];
  *loss = total;
}

__kernel void gradient(__global const float* h, __global const float* x, __global float* gradient) {
  ELEMENT;
  gradient[i] = h[i] * x[i];
}

__kernel void update(__global const float* gradient, __global const float* rate, __global float* w) {
  ELEMENT;
  w[i] -= *rate * gradient[i];
}
