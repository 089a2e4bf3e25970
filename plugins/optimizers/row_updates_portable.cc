#define ROW_UPDATES_ISA portable
#include "row_updates.inc"
