// Sentences about samples and inputs, as the checks of tensors make them, in the terms of a request of rows.
#pragma once

#include <string>
#include <string_view>

namespace tessera {
class ColumnEncoding;
}

namespace tessera::serve {

// Makes `row 2, column "age": it is too large` of "input age of sample 1 is too large". Other sentences stay.
// `columns`: the model's; null: a column has the name of its input.
std::string row_error(std::string_view sentence, const ColumnEncoding* columns);

}  // namespace tessera::serve
