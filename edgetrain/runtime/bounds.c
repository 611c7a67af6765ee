/* Whether what the caller wrote is in its bounds: labels, and what becomes a place in a table. A kernel would read
 * beyond its tensors, or compute something else. */
#include "internal.h"

enum {
  PARTS = 10,
  LONGEST_NAME = 96,
  LONGEST_NUMBER = 20, /* 19 digits and a sign */
  DECIMALS = 6,
  SPELLED = LONGEST_NUMBER + 1 + DECIMALS + 1,
  WORDS = 1 + LONGEST_NAME + 8 + 10 + 6 + 4 + 4 * SPELLED + 1
};

static char words[WORDS];

/* Returns the end. Without snprintf, which bare metal need not have, and the 64-bit division that small processors
 * lack. */
static char* spell(int64_t value, char* digits) {
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
  return digits;
}

/* Up to six decimals, cut, from the bits of the number: small processors may have no conversion to 64 bits. */
static void spell_float(float value, char* digits) {
  const union {
    float value;
    uint32_t bits;
  } spelled = {value};
  const uint32_t bits = spelled.bits;
  const int32_t exponent = (int32_t)(bits >> 23 & 255) - 150; /* of the last bit of the 24 that count */
  const uint64_t significand = (bits & 0x7fffff) | (exponent > -150 ? 0x800000 : 0);
  const char* const no_number = value != value ? "NaN" : exponent > 39 ? "a number beyond 64 bits" : NULL;
  for (size_t i = 0; no_number != NULL; i++) {
    digits[i] = no_number[i];
    if (no_number[i] == '\0') return;
  }
  const int32_t shift = exponent < 0 ? -exponent : 0;
  if (bits >> 31) *digits++ = '-';
  const uint64_t whole = exponent >= 0 ? significand << exponent : shift < 24 ? significand >> shift : 0;
  digits = spell((int64_t)whole, digits);
  uint64_t rest = shift <= 40 ? significand & (((uint64_t)1 << shift) - 1) : 0;
  if (rest == 0) return;
  *digits++ = '.';
  for (int32_t i = 0; i < DECIMALS; i++) {
    rest *= 10;
    *digits++ = (char)('0' + (rest >> shift));
    rest &= ((uint64_t)1 << shift) - 1;
  }
  *digits = '\0';
}

static int32_t refuse(const char* tensor, const char* value, size_t index, const char* lowest, const char* highest) {
  char place[SPELLED];
  spell((int64_t)index, place);
  const char* const parts[PARTS] = {"`",   tensor,    "` holds ", value,  " at index ",
                                    place, ", not ", lowest,      " to ", highest};
  size_t end = 0;
  for (size_t part = 0; part < PARTS; part++) {
    const char* const text = parts[part];
    for (size_t i = 0; text[i] != '\0' && i < LONGEST_NAME; i++) words[end++] = text[i];
  }
  words[end] = '\0';
  edge_describe(words, 0);
  return EDGE_ERROR_DATA;
}

/* The first loop has no branch, so that compilers make vector instructions of it; the second one is for the message.
 * Comparisons are negated since NaN is outside. */
#define EDGE_CHECK_VALUES(type, value_type, limit_type, spell_one)                                                   \
  static int32_t check_##type(const value_type* all, size_t from, size_t count, limit_type lowest,                   \
                              limit_type highest, const char* tensor) {                                              \
    const value_type* const value = all + from;                                                                      \
    const value_type least = (value_type)lowest, most = (value_type)highest;                                         \
    uint32_t is_outside = 0;                                                                                         \
    for (size_t i = 0; i < count; i++) is_outside |= (uint32_t)!(value[i] >= least) | (uint32_t)!(value[i] <= most); \
    if (is_outside == 0) return EDGE_OK;                                                                             \
    size_t first = 0;                                                                                                \
    while (value[first] >= least && value[first] <= most) first++;                                                   \
    char digits[3][SPELLED];                                                                                         \
    spell_one(value[first], digits[0]);                                                                              \
    spell_one(lowest, digits[1]);                                                                                    \
    spell_one(highest, digits[2]);                                                                                   \
    return refuse(tensor, digits[0], from + first, digits[1], digits[2]);                                            \
  }                                                                                                                  \
  int32_t edge_check_region_##type(const void* values, const edge_region* region, limit_type lowest,                 \
                                   limit_type highest, const char* tensor) {                                         \
    for (size_t row = 0; row < region->rows; row++) {                                                                \
      for (size_t run = 0; run < region->count; run++) {                                                             \
        const size_t from = row * region->row_step + region->start + run * region->step;                             \
        const int32_t status = check_##type(values, from, region->length, lowest, highest, tensor);                  \
        if (status != EDGE_OK) return status;                                                                        \
      }                                                                                                              \
    }                                                                                                                \
    return EDGE_OK;                                                                                                  \
  }

#define EDGE_CHECK_WHOLE(type)                                                                                       \
  EDGE_CHECK_VALUES(type, type##_t, int64_t, spell)                                                                  \
  int32_t edge_check_##type(const void* values, size_t count, int64_t lowest, int64_t highest, const char* tensor) { \
    return check_##type(values, 0, count, lowest, highest, tensor);                                                  \
  }

EDGE_CHECK_WHOLE(int64)
EDGE_CHECK_WHOLE(int32)
EDGE_CHECK_WHOLE(int16)
EDGE_CHECK_WHOLE(int8)
EDGE_CHECK_WHOLE(uint8)
EDGE_CHECK_VALUES(float32, float, float, spell_float)
