// The engine that moves the bytes of every group (tcp.h), compiled as its reductions need it.
#include "tcp.h"

template class tessera::sdk::PairEngine<tessera::tcp::Channel>;
