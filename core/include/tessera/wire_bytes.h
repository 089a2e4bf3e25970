// tessera/wire_bytes.h - sizes of rows on their way between ranks in a transport.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

// Bytes that a transport sends for `elements` float32 of rows, or of their gradients, between two ranks. Rows have
// `row_elements` elements (0: several widths). Null: 4 bytes each. traffic.h makes such functions for groups and
// transports.
using WireBytes = std::function<int64_t(bool gradients, int64_t elements, int64_t row_elements)>;

}  // namespace tessera
