#define ROW_UPDATES_ISA avx512
#include "row_updates.inc"
