// The two connections between this rank and another: data, and what must overtake data.
#pragma once

#include "tessera/sdk/fd.h"

namespace tessera::tcp {

using sdk::Fd;

struct Link {
  Fd data;
  Fd control;
};

}  // namespace tessera::tcp
