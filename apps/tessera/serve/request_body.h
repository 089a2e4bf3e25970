// Counts the bytes of requests under way as they arrive; a merely announced length costs nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/beast/core/buffer_traits.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace tessera::serve {

// Bounds the bytes of all requests together. Every connection has a share of its own, and any need beyond it comes out
// of one pool. Clients that fill the pool therefore cannot keep small requests out.
class BodyPool {
 public:
  BodyPool(size_t bytes, size_t connections)
      : own_(std::min(kMostOwn, bytes / 4 / connections)), left_(bytes - own_ * connections) {}

  size_t own() const { return own_; }  // bytes reserved for each connection
  bool take(size_t bytes) {
    size_t left = left_;
    while (left >= bytes) {
      if (left_.compare_exchange_weak(left, left - bytes)) return true;
    }
    return false;
  }
  void give_back(size_t bytes) { left_ += bytes; }

 private:
  static constexpr size_t kMostOwn = size_t{64} << 10;

  const size_t own_;
  std::atomic<size_t> left_;
};

// A body that takes its bytes out of the pool, and returns them in clear() or in its destructor.
class RequestBytes {
 public:
  explicit RequestBytes(BodyPool& pool) : pool_(&pool) {}
  ~RequestBytes() { clear(); }
  RequestBytes(const RequestBytes&) = delete;
  RequestBytes& operator=(const RequestBytes&) = delete;

  // Returns false if the pool is empty. Throws bad_alloc.
  bool append(const char* bytes, size_t n) {
    const size_t wanted = std::max(text_.size() + n, pool_->own()) - pool_->own();
    if (wanted > taken_) {
      if (!pool_->take(wanted - taken_)) return false;
      taken_ = wanted;
    }
    if (text_.capacity() - text_.size() < n) {
      text_.reserve(std::max(text_.size() + n, std::min(2 * text_.capacity(), announced_)));
    }
    text_.append(bytes, n);
    return true;
  }
  // Sets the final length, so that the text does not reserve more.
  void announce(size_t bytes) { announced_ = bytes; }
  // Moves the text out; its bytes stay counted.
  std::string take_text() { return std::move(text_); }
  void clear() {
    text_ = {};
    pool_->give_back(std::exchange(taken_, 0));
  }

 private:
  BodyPool* pool_;
  std::string text_;
  size_t taken_ = 0;
  size_t announced_ = std::numeric_limits<size_t>::max();
};

// Adapts RequestBytes to Beast's parser. Its errors: no_buffer_space if the pool is empty, not_enough_memory.
struct RequestBody {
  using value_type = RequestBytes;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>& length, boost::system::error_code& error) {
      if (length) body_.announce(static_cast<size_t>(*length));
      error = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      namespace errc = boost::system::errc;
      error = {};
      try {
        for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
          if (body_.append(static_cast<const char*>(buffer.data()), buffer.size())) continue;
          error = errc::make_error_code(errc::no_buffer_space);
          return 0;
        }
      } catch (const std::bad_alloc&) {
        error = errc::make_error_code(errc::not_enough_memory);
        return 0;
      }
      return boost::beast::buffer_bytes(buffers);
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace tessera::serve
