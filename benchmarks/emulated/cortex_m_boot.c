/* Starts `firmware` on a Cortex-M and leaves the emulator with what it returns; 99 after a fault. */
#include "cortex_m.h"

extern uint32_t stack_top, data_load, data_begin, data_end, bss_begin, bss_end;

enum { ADP_STOPPED_APPLICATION_EXIT = 0x20026 };

int32_t semihost(int32_t operation, const void* argument) {
  register int32_t r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void print_bits(uint32_t bits) {
  char text[10];
  for (int i = 0; i < 8; i++) text[i] = "0123456789abcdef"[bits >> (28 - 4 * i) & 15];
  text[8] = '\n';
  text[9] = 0;
  semihost(SYS_WRITE0, text);
}

static void leave(uint32_t code) {
  const uint32_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, code};
  semihost(SYS_EXIT_EXTENDED, block);
  for (;;) {
  }
}

void reset(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xFu << 20; /* CPACR: the floating-point unit on */
  __asm__ volatile("dsb\n isb");
  for (uint32_t *from = &data_load, *to = &data_begin; to < &data_end;) *to++ = *from++;
  for (uint32_t* to = &bss_begin; to < &bss_end;) *to++ = 0;
  leave(firmware());
}

static void fault(void) { leave(99); }

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    &stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault};
