#define LOOPS_ISA avx512
#include "loops.inc"
