// Writes vectors for other programs, such as FAISS and Milvus.
#pragma once

#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::cli {

// True if the name ends in .npy (NumPy), .fvecs (for each row its width as an int32, then its values) or .csv (a line
// for each row: id,0,1,...).
bool is_vectors_file(const std::string& path);

// `vectors`: float32 [rows, width]. `ids`: a text for each row; empty: the rows' numbers. The ids are in a .csv file
// itself; for other files, unless they are empty, in FILE.ids.txt, one in each line. kInvalidArgument: an id with a
// line break for such a file. kUnavailable: the file cannot be written.
void write_vectors_file(const std::string& path, const Tensor& vectors, const std::vector<std::string>& ids);

}  // namespace tessera::cli
