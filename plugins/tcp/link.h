// The two connections between this rank and another: one for data, and one for messages that must overtake data.
#pragma once

#include "tessera/sdk/fd.h"

namespace tessera::tcp {

using sdk::Fd;

struct Link {
  Fd data;
  Fd control;
};

}  // namespace tessera::tcp
