// Output of tessera predict other than scores: items for each sample, or the values of a layer.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::cli {

// For a model that answers with items (retrieval/retriever.h): writes a line "row,rank,item,score" for each item of a
// sample, or an object per sample.
void predict_items(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                   bool as_json, std::ostream& out);
// Writes the values of the model's last output, as retrieval::write_vectors() does.
void predict_vectors(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts, int64_t batch,
                     const std::string& path);

}  // namespace tessera::cli
