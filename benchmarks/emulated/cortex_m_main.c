/* Trains an edgetrain program on a Cortex-M without an operating system. Prints each loss as the bits of its float; with
 * EDGE_PROFILE then the number of ops, and the timer's ticks of each in the last step. */
#include "cortex_m.h"
#include "edgetrain_model.h"

extern const uint8_t parameters_begin[], parameters_end[], images_begin[], images_end[], labels_begin[], labels_end[];

static uint8_t arena[EDGE_ARENA_BYTES] __attribute__((aligned(EDGE_ARENA_ALIGNMENT)));

#if EDGE_PAGE_SLOTS > 0
/* The board's external memory stands in for the SD card. */
static uint8_t* card(uint32_t slot) { return (uint8_t*)0x21000000 + (size_t)slot * EDGE_ARENA_BYTES; }

int32_t edge_page_out(uint32_t slot, const void* from, size_t nbytes) {
  memcpy(card(slot), from, nbytes);
  return 0;
}

int32_t edge_page_in(uint32_t slot, void* to, size_t nbytes) {
  memcpy(to, card(slot), nbytes);
  return 0;
}
#endif

#ifdef EDGE_PROFILE
/* A timer of the MPS2 boards, which counts down at 25 MHz. With -icount shift=9 each instruction takes 512 ns: several
 * ticks, so that ticks say exactly how many there were. */
static volatile uint32_t* const timer = (volatile uint32_t*)0x40000000;
enum { TIMER_CONTROL, TIMER_VALUE, TIMER_RELOAD, OPS = 1024 };

static uint32_t started, ops, ticks[OPS];

static void start_timer(void) {
  timer[TIMER_RELOAD] = 0xFFFFFFFF;
  timer[TIMER_VALUE] = 0xFFFFFFFF;
  timer[TIMER_CONTROL] = 1;
}

void edge_profile_begin(void) { started = timer[TIMER_VALUE]; }

void edge_profile_end(uint32_t index) {
  const uint32_t ended = timer[TIMER_VALUE];
  if (index >= OPS) return;
  ticks[index] += started - ended;
  if (ops <= index) ops = index + 1;
}

static void print_ticks(void) {
  print_bits(ops);
  for (uint32_t op = 0; op < ops; op++) print_bits(ticks[op]);
}
#endif

uint32_t firmware(void) {
  memcpy(arena, parameters_begin, (size_t)(parameters_end - parameters_begin));
  memcpy(arena + EDGE_OFFSET_IMAGE, images_begin, (size_t)(images_end - images_begin));
  memcpy(arena + EDGE_OFFSET_TRAIN_LABELS, labels_begin, (size_t)(labels_end - labels_begin));
  const float rate = 0.05f;
  memcpy(arena + EDGE_OFFSET_TRAIN_LEARNING_RATE, &rate, sizeof rate);
  if (edge_open(arena, sizeof arena, 1, NULL) != EDGE_OK) return 4;
#ifdef EDGE_PROFILE
  start_timer();
#endif
  for (int step = 0; step < STEPS; step++) {
#ifdef EDGE_PROFILE
    memset(ticks, 0, sizeof ticks);
#endif
    if (edge_step() != EDGE_OK) return 5;
    uint32_t bits;
    memcpy(&bits, arena + EDGE_OFFSET_TRAIN_LOSS, sizeof bits);
    print_bits(bits);
  }
#ifdef EDGE_PROFILE
  print_ticks();
#endif
  return 0;
}

__asm__(".section .rodata.files, \"a\"\n .balign 64\n"
        "parameters_begin: .incbin \"parameters.bin\"\n parameters_end: .balign 64\n"
        "images_begin: .incbin \"images.bin\"\n images_end: .balign 64\n"
        "labels_begin: .incbin \"labels.bin\"\n labels_end: .balign 4\n"
        ".global parameters_begin, parameters_end, images_begin, images_end, labels_begin, labels_end\n");
