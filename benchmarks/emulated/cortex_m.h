/* A Cortex-M without an operating system: what starts a program there, and how it talks to the emulator. */
#ifndef CORTEX_M_H
#define CORTEX_M_H

#include <stddef.h>
#include <stdint.h>

extern void* memcpy(void* to, const void* from, size_t count); /* the compiler brings them; there is no libc */
extern void* memset(void* to, int byte, size_t count);

/* Operations of Arm's semihosting: the debugger, here the emulator, does what a system call does elsewhere. */
enum { SYS_OPEN = 0x01, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT_EXTENDED = 0x20 };

int32_t semihost(int32_t operation, const void* argument);
void print_bits(uint32_t bits); /* eight hexadecimal digits and the end of the line */

/* Supplied by the program; what it returns is the emulator's exit code. */
uint32_t firmware(void);

#endif
