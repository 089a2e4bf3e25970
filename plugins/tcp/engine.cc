// Instantiates the engine that moves the bytes of every group (tcp.h), with the compiler flags its reductions need.
#include "tcp.h"

template class tessera::sdk::PairEngine<tessera::tcp::Channel>;
