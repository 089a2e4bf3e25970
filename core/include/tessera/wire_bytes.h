// tessera/wire_bytes.h - what a transport makes of rows on their way between ranks.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

// Bytes that a transport sends for a piece of rows between two ranks, or of their gradients: for so many float32, which
// are rows of `row_elements` (0: of several widths). Null: 4 each. traffic.h makes those of groups and transports.
using WireBytes = std::function<int64_t(bool gradients, int64_t elements, int64_t row_elements)>;

}  // namespace tessera
