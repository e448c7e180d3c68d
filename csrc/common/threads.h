// A loop over items that do not touch each other, on several threads of the CPU.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
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
  explicit Items(int64_t count, int64_t at_once = 16) : count_(count), at_once_(at_once) {}

  // Whether any were left: then they are [*begin, *end).
  bool take(int64_t* begin, int64_t* end) {
    *begin = taken_.fetch_add(at_once_, std::memory_order_relaxed);
    *end = std::min(*begin + at_once_, count_);
    return *begin < count_;
  }

 private:
  const int64_t count_, at_once_;
  std::atomic<int64_t> taken_{0};
};

// Threads worth waking for `work` multiply-adds: below a million each, waking one costs more.
inline int64_t threads_for(double work, int64_t most) {
  return std::max<int64_t>(1, std::min<int64_t>(most, static_cast<int64_t>(work / 1e6)));
}

// Threads that wait for work, kept between calls: starting one costs more than most loops here.
class Pool {
 public:
  // The pool of this process. A child of fork() has none of its parent's threads and begins anew;
  // what it inherited is left alone, since no thread of it can be joined there.
  static Pool& of_process() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { current() = nullptr; });
    static_cast<void>(registered);
    Pool* pool = current().load(std::memory_order_acquire);
    if (pool != nullptr) return *pool;
    Pool* fresh = new Pool;
    if (current().compare_exchange_strong(pool, fresh)) return *fresh;
    delete fresh;
    return *pool;
  }

  // Calls run(context) on `threads` threads, this one among them. A second caller meanwhile, or
  // one of the threads themselves, works alone.
  void call(int64_t threads, void (*run)(void*), void* context) {
    const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (threads > 1 && turn.owns_lock()) {
      const int64_t helpers = start(threads - 1);
      {
        const std::lock_guard<std::mutex> lock(guard_);
        run_ = run;
        context_ = context;
        wanted_ = busy_ = helpers;
        ++round_;
      }
      wake_.notify_all();
      run(context);
      std::unique_lock<std::mutex> lock(guard_);
      done_.wait(lock, [&] { return busy_ == 0; });
    } else {
      run(context);
    }
  }

 private:
  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }

  // Brings the number of threads to `count` where the system has so many; returns those there are.
  int64_t start(int64_t count) {
    while (started_ < count) {
      try {
        std::thread(&Pool::serve, this, started_).detach();
      } catch (const std::system_error&) {
        break;  // no more threads to be had: those there are do all the work
      }
      ++started_;
    }
    return std::min(count, started_);
  }

  void serve(int64_t number) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(guard_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (number >= wanted_) continue;
      void (*const run)(void*) = run_;
      void* const context = context_;
      lock.unlock();
      run(context);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_, guard_;
  std::condition_variable wake_, done_;
  void (*run_)(void*) = nullptr;
  void* context_ = nullptr;
  uint64_t round_ = 0;
  int64_t started_ = 0, wanted_ = 0, busy_ = 0;
};

// Calls body() on `threads` threads, this one among them, and passes on what one throws.
template <typename Body>
void on_threads(int64_t threads, const Body& body) {
  struct Shared {
    const Body* body;
    std::exception_ptr error;
    std::mutex guard;
  } shared{&body, nullptr, {}};
  const auto run = [](void* context) {
    Shared& call = *static_cast<Shared*>(context);
    try {
      (*call.body)();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(call.guard);
      call.error = std::current_exception();
    }
  };
  if (threads > 1) {
    Pool::of_process().call(threads, run, &shared);
  } else {
    run(&shared);
  }
  if (shared.error) std::rethrow_exception(shared.error);
}

}  // namespace rrgkern
