/* Trains an edgetrain program on a Cortex-M without an operating system. Output goes through semihosting. */
#include "edgetrain_model.h"

extern void* memcpy(void* to, const void* from, size_t count); /* the compiler brings it; there is no libc */

extern uint32_t stack_top, data_load, data_begin, data_end, bss_begin, bss_end;
extern const uint8_t parameters_begin[], parameters_end[], images_begin[], images_end[], labels_begin[], labels_end[];

static uint8_t arena[EDGE_ARENA_BYTES] __attribute__((aligned(EDGE_ARENA_ALIGNMENT)));

enum { SYS_WRITE0 = 0x04, SYS_EXIT_EXTENDED = 0x20, ADP_STOPPED_APPLICATION_EXIT = 0x20026 };

static int32_t semihost(int32_t operation, const void* argument) {
  register int32_t r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void leave(uint32_t code) {
  const uint32_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, code};
  semihost(SYS_EXIT_EXTENDED, block);
  for (;;) {
  }
}

static void print_bits(uint32_t bits) {
  char text[10];
  for (int i = 0; i < 8; i++) text[i] = "0123456789abcdef"[bits >> (28 - 4 * i) & 15];
  text[8] = '\n';
  text[9] = 0;
  semihost(SYS_WRITE0, text);
}

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

static uint32_t train(void) {
  memcpy(arena, parameters_begin, (size_t)(parameters_end - parameters_begin));
  memcpy(arena + EDGE_OFFSET_IMAGE, images_begin, (size_t)(images_end - images_begin));
  memcpy(arena + EDGE_OFFSET_TRAIN_LABELS, labels_begin, (size_t)(labels_end - labels_begin));
  const float rate = 0.05f;
  memcpy(arena + EDGE_OFFSET_TRAIN_LEARNING_RATE, &rate, sizeof rate);
  if (edge_open(arena, sizeof arena, 1, NULL) != EDGE_OK) return 4;
  for (int step = 0; step < STEPS; step++) {
    if (edge_step() != EDGE_OK) return 5;
    uint32_t bits;
    memcpy(&bits, arena + EDGE_OFFSET_TRAIN_LOSS, sizeof bits);
    print_bits(bits);
  }
  return 0;
}

void reset(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xFu << 20; /* CPACR: the floating-point unit on */
  __asm__ volatile("dsb\n isb");
  for (uint32_t *from = &data_load, *to = &data_begin; to < &data_end;) *to++ = *from++;
  for (uint32_t* to = &bss_begin; to < &bss_end;) *to++ = 0;
  leave(train());
}

static void fault(void) { leave(99); }

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    &stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault};

__asm__(".section .rodata.files, \"a\"\n .balign 64\n"
        "parameters_begin: .incbin \"parameters.bin\"\n parameters_end: .balign 64\n"
        "images_begin: .incbin \"images.bin\"\n images_end: .balign 64\n"
        "labels_begin: .incbin \"labels.bin\"\n labels_end: .balign 4\n"
        ".global parameters_begin, parameters_end, images_begin, images_end, labels_begin, labels_end\n");
