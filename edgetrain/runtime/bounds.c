/* Whether the whole numbers that the caller wrote are in their bounds: labels, and places in a table. A kernel would
 * read beyond its tensors, or compute something else. */
#include "internal.h"

enum {
  PARTS = 10,
  LONGEST_NAME = 96,
  LONGEST_NUMBER = 20, /* 19 digits and a sign */
  WORDS = 1 + LONGEST_NAME + 8 + 10 + 6 + 4 + 4 * LONGEST_NUMBER + 1
};

static char words[WORDS];

/* Without snprintf, which bare metal need not have, and without the 64-bit division that small processors lack. */
static void spell(int64_t value, char* digits) {
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  int is_leading = 1;
  if (value < 0) *digits++ = '-';
  for (int32_t zeros = LONGEST_NUMBER - 2; zeros >= 0; zeros--) {
    uint64_t power = 1;
    for (int32_t i = 0; i < zeros; i++) power *= 10;
    char digit = '0';
    for (; left >= power; left -= power) digit++;
    is_leading = is_leading && digit == '0' && zeros > 0;
    if (!is_leading) *digits++ = digit;
  }
  *digits = '\0';
}

static int32_t refuse(const char* tensor, size_t index, int64_t value, int64_t lowest, int64_t highest) {
  const int64_t numbers[4] = {value, (int64_t)index, lowest, highest};
  char digits[4][LONGEST_NUMBER + 1];
  for (size_t i = 0; i < 4; i++) spell(numbers[i], digits[i]);
  const char* const parts[PARTS] = {"`",       tensor,    "` holds ", digits[0], " at index ",
                                    digits[1], ", not ", digits[2],  " to ",    digits[3]};
  size_t end = 0;
  for (size_t part = 0; part < PARTS; part++) {
    const char* const text = parts[part];
    for (size_t i = 0; text[i] != '\0' && i < LONGEST_NAME; i++) words[end++] = text[i];
  }
  words[end] = '\0';
  edge_describe(words, 0);
  return EDGE_ERROR_DATA;
}

/* The first loop has no branch, so that compilers make vector instructions of it; the second one is for the message. */
#define EDGE_CHECK_BOUNDS(type)                                                                                 \
  int32_t edge_check_##type(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor) { \
    const type##_t* const value = values;                                                                       \
    const type##_t least = (type##_t)lowest, most = (type##_t)highest;                                          \
    uint32_t is_outside = 0;                                                                                    \
    for (size_t i = 0; i < count; i++) is_outside |= (uint32_t)(value[i] < least) | (uint32_t)(value[i] > most); \
    if (is_outside == 0) return EDGE_OK;                                                                        \
    size_t first = 0;                                                                                           \
    while (value[first] >= least && value[first] <= most) first++;                                              \
    return refuse(tensor, first, (int64_t)value[first], lowest, highest);                                       \
  }

EDGE_CHECK_BOUNDS(int64)
EDGE_CHECK_BOUNDS(int32)
EDGE_CHECK_BOUNDS(int16)
EDGE_CHECK_BOUNDS(int8)
EDGE_CHECK_BOUNDS(uint8)
