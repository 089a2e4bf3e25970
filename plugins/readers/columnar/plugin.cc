// The readers parquet and arrow: tessera.reader/draft-1 over files that Arrow C++ reads, where this was built with it.
#include "tessera/sdk/plugin.h"
#include "columnar/reader.h"

namespace tessera_readers {
namespace {

class Parquet : public ColumnarReader {
 public:
  Parquet() : ColumnarReader({".parquet"}, open_parquet) {}
  static void probe(tessera::sdk::Host) { require_arrow_cpp(); }
};

class Ipc : public ColumnarReader {
 public:
  Ipc() : ColumnarReader({".arrow", ".feather"}, open_ipc) {}
  static void probe(tessera::sdk::Host) { require_arrow_cpp(); }
};

}  // namespace

TESSERA_PLUGIN(
    "tessera-columnar-readers", "1.0.0",
    tessera::sdk::component<Parquet>({.id = "parquet", .version = "1.0.0", .about = "Parquet, by Arrow C++"}),
    tessera::sdk::component<Ipc>(
        {.id = "arrow", .version = "1.0.0", .about = "Arrow IPC files (Feather), by Arrow C++"}));

}  // namespace tessera_readers
