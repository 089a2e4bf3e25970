#define LOOPS_ISA avx2
#include "loops.inc"
