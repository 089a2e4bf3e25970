#define LOOPS_ISA portable
#include "loops.inc"
