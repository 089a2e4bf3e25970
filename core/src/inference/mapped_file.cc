#include "inference/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "checkpoint/files.h"

namespace tessera::inference {

MappedFile::MappedFile(const std::string& path) {
  const checkpoint::Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) checkpoint::fail_with(errno, "open", path);
  if (!S_ISREG(info.st_mode)) fail(Code::kUnavailable, "cannot open ", path, ": it is no file");
  size_ = info.st_size;
  if (size_ == 0) fail(Code::kDataLoss, path, " is empty");
  const auto bytes = static_cast<size_t>(size_);
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) checkpoint::fail_with(errno, "map", path);
  memory_ = std::shared_ptr<void>(at, [bytes](void* p) { ::munmap(p, bytes); });
}

Tensor MappedFile::view(int64_t offset, std::vector<int64_t> shape, DType dtype) const {
  Tensor out = Tensor::borrow(static_cast<char*>(memory_.get()) + offset, std::move(shape), dtype, memory_);
  TESSERA_CHECK(offset >= 0 && offset + out.bytes() <= size_, "a view beyond the end of a file");
  return out;
}

std::string read_text(const std::string& path) {
  const checkpoint::InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, text.data(), file.size());
  return text;
}

}  // namespace tessera::inference
