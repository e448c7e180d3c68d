// A loop over items that do not touch each other, on several threads of the CPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rrgkern {

// Items that nobody has taken yet, handed out a few at a time.
class Items {
 public:
  explicit Items(int64_t count) : count_(count) {}

  // Whether any were left: then they are [*begin, *end).
  bool take(int64_t* begin, int64_t* end) {
    constexpr int64_t kTaken = 16;
    *begin = taken_.fetch_add(kTaken, std::memory_order_relaxed);
    *end = std::min(*begin + kTaken, count_);
    return *begin < count_;
  }

 private:
  const int64_t count_;
  std::atomic<int64_t> taken_{0};
};

// Threads worth starting for `work` multiply-adds: below a million each, starting one costs more.
inline int64_t threads_for(double work, int64_t most) {
  return std::max<int64_t>(1, std::min<int64_t>(most, static_cast<int64_t>(work / 1e6)));
}

// Calls body() on `threads` threads, this one among them, and passes on what one throws.
template <typename Body>
void on_threads(int64_t threads, const Body& body) {
  std::exception_ptr error;
  std::mutex guard;
  const auto run = [&] {
    try {
      body();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(threads);
  for (int64_t k = 1; k < threads; ++k) {
    try {
      others.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: those there are do all the work
    }
  }
  run();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace rrgkern
