#define ROW_UPDATES_ISA avx2
#include "row_updates.inc"
